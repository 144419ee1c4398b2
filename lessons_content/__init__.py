"""What a lesson holds besides its text: exercises, mistakes, pictures and measured runs."""
