"""The mistakes that learners make: their texts, what each gives, and what finds them."""
