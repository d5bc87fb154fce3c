"""How a network is trained: optimisers, steps, batches, weight of the KL term."""

from __future__ import annotations

from dataclasses import dataclass

from pydirect._validation import as_choice, as_count, as_number
from pydirect.networks.inference import Inference

NETWORK_OPTIMIZERS = ("adam", "adam+lbfgs", "lbfgs")
BATCH_SIZE = 100
# Fraction of Adam's steps by whose end the KL term has its full weight.
MOST_WARMUP = 0.9
# Adam's steps unless asked for: the first number, or as many as the second number of passes takes if that is more.
LEAST_STEPS, LEAST_PASSES = 3000, 100


@dataclass(frozen=True)
class TrainingSchedule:
    """How a network is trained.

    Parameters
    ----------
    optimizer : {"adam", "adam+lbfgs", "lbfgs"}, default="adam"
        L-BFGS takes the bound to its optimum. Held-out rows seldom gain by that, and lose much where the noise depends
        on the inputs: small batches of a moderate number of steps end where the bound is flat.
    n_steps : int, optional
        Of Adam. By default `LEAST_STEPS`, or what `LEAST_PASSES` passes over the rows take if that is more.
    learning_rate : float, default=0.01
        Initial step size of Adam; it falls to zero along half a cosine.
    batch_size : int or None, default=100
        Rows per step of Adam; None for all of them.
    kl_warmup, kl_ramp : float, default=0.0
        Fraction of Adam's steps without the KL term, and after these of steps in which its weight rises to one: at most
        0.9 together, for the bound is followed where the weight is one.
    max_iter : int, default=2000
        Of L-BFGS, which after Adam improves the best of several starts alone.
    """

    optimizer: str = "adam"
    n_steps: int | None = None
    learning_rate: float = 0.01
    batch_size: int | None = BATCH_SIZE
    kl_warmup: float = 0.0
    kl_ramp: float = 0.0
    max_iter: int = 2000

    def __post_init__(self) -> None:
        as_choice(self.optimizer, "optimizer", NETWORK_OPTIMIZERS)
        if self.n_steps is not None:
            as_count(self.n_steps, "n_steps")
        as_number(self.learning_rate, "learning_rate", above=0.0)
        if self.batch_size is not None:
            as_count(self.batch_size, "batch_size")
        as_number(self.kl_warmup, "kl_warmup", at_least=0.0, at_most=MOST_WARMUP)
        as_number(self.kl_ramp, "kl_ramp", at_least=0.0)
        if self.kl_warmup + self.kl_ramp > MOST_WARMUP + 1e-9:
            given = f"{self.kl_ramp} and kl_warmup={self.kl_warmup}"
            raise ValueError(f"kl_ramp must be at most {MOST_WARMUP} less kl_warmup, got {given}")
        as_count(self.max_iter, "max_iter")
        for name in ("kl_warmup", "kl_ramp"):
            if self.optimizer == "lbfgs" and getattr(self, name) != 0.0:
                raise ValueError(f"{name} must be 0.0 for optimizer='lbfgs', got {getattr(self, name)}")

    def stages(self, inference: Inference) -> tuple[str, ...]:
        """Return the optimisers in turn.

        Parameters
        ----------
        inference : Inference
            The way to infer.

        Returns
        -------
        tuple of str
            Their names.

        Raises
        ------
        ValueError
            When they do not serve this inference.
        """
        if inference.fresh and self.optimizer != "adam":
            raise ValueError(f"optimizer must be 'adam' for inference={inference.name!r}, got {self.optimizer!r}")
        return tuple(self.optimizer.split("+"))

    def steps(self, n_rows: int) -> int:
        """Return the number of Adam's steps.

        Parameters
        ----------
        n_rows : int
            Number of rows.

        Returns
        -------
        int
            Number of steps.
        """
        if self.n_steps is not None:
            return self.n_steps
        return max(LEAST_STEPS, LEAST_PASSES * self.n_batches(n_rows))

    def n_batches(self, n_rows: int) -> int:
        """Return the number of batches in a pass over the rows.

        Parameters
        ----------
        n_rows : int
            Number of rows.

        Returns
        -------
        int
            At least one.
        """
        return max(1, n_rows // (self.batch_size or n_rows))

    def kl_weight(self, progress: float) -> float:
        """Weight λ of the divergence after a fraction of Adam's steps.

        Parameters
        ----------
        progress : float
            Fraction of the steps that is done.

        Returns
        -------
        float
            Between 0 and 1.
        """
        if progress < self.kl_warmup:
            return 0.0
        return min(1.0, (progress - self.kl_warmup) / self.kl_ramp) if self.kl_ramp > 0 else 1.0
