"""Networks of rectified linear units with Gaussian weights: moments propagated, or weights drawn."""
