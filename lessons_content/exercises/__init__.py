"""What the exercises of all lessons share: how an answer is tried, compared and shown."""
