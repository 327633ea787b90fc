"""What a shell needs besides the program: completion, and man pages made from the help."""
