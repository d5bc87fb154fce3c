"""scikit-learn estimators: the only room that imports scikit-learn."""
