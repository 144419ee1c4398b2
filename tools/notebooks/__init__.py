"""Makes the notebooks: from one source for each lesson, a solution and a student notebook."""
