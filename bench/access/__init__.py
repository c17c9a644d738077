"""What keys cost, whether their times tell anything, and how well limits and shares hold."""
