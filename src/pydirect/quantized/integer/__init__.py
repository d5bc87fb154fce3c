"""Integer programs: how a quantised model computes."""
