"""How much hardware a load needs: a calculator, and a simulation of the fleet that it proposes."""
