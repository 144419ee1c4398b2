"""What makes and measures the course. No lesson, check or grade imports it."""
