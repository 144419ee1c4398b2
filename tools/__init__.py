"""Programs that make and measure the course. No lesson, check or grade imports them."""
