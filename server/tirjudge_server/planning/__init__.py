"""How much hardware a load needs: a capacity plan in closed form."""
