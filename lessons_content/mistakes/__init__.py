"""The mistakes that learners make: their texts, their recorded results, and naming them."""
