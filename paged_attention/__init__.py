"""What the lessons build, finished: each lesson imports from here what earlier ones made, and shows the code itself."""
