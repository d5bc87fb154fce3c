import numpy as np

from pydirect.optimize.conjugate_gradients import Deflation, conjugate_gradients, sketch_of


def test_newton_systems_of_many_models_take_few_products():
    """Largest eigenvalues that all share slow no model down, whatever its diagonal."""
    rng = np.random.default_rng(0)
    b, lanes = 160, 16
    basis = np.linalg.qr(rng.standard_normal((b, b)))[0]
    a = (basis * np.r_[np.geomspace(1e5, 1e3, 12), np.ones(b - 12)]) @ basis.T
    shift, right = rng.uniform(0.1, 5.0, (b, lanes)), rng.standard_normal((b, lanes))
    narrow = a.astype(np.float32)

    def product(x):
        return narrow @ x + shift.astype(np.float32) * x

    deflation = Deflation(sketch_of(narrow), a.diagonal(), shift)
    x, n_steps = conjugate_gradients(product, deflation, right.astype(np.float32), 60, 1e-3)
    expected = np.stack([np.linalg.solve(a + np.diag(d), r) for d, r in zip(shift.T, right.T, strict=True)], axis=1)
    np.testing.assert_allclose(x, expected, atol=5e-3 * np.abs(expected).max())
    assert n_steps <= 12
    inverse = (1.0 / (shift + a.diagonal()[:, None])).astype(np.float32)
    assert conjugate_gradients(product, lambda r: inverse * r, right.astype(np.float32), 60, 1e-3)[1] > n_steps
