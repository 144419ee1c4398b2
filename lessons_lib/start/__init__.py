"""The command `paged-attention-course`: opens the lessons, grades, looks at the machine."""
