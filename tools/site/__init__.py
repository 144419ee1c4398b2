"""Makes the website of the course: each lesson as it ran, and what was measured."""
