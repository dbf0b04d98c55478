"""How well recall answers questions whose evidence is known."""
