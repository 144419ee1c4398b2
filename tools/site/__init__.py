"""Makes the website of the course: each lesson with its outputs, and the measurements."""
