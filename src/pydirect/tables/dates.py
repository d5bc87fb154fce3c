"""Columns of dates and times: what they are read from, and elapsed time and seasons as columns of numbers."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.persistence.schema import AtLeast

# Text that is a date: 2024-01-31, 2024-01-31 12:30, 2024-01-31T12:30:00.5+01:00, or with the zone behind in brackets.
ISO = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)?(Z|[+-]\d\d:\d\d)?(?:\[([\w/+-]+)\])?", re.ASCII
)
# Text that is a date otherwise: 31.01.2023, 01/31/2023, 31 Jan 2023, 2023/01/31.
OTHER = re.compile(r"(?:\d\d?[./ -](?:\d\d?|[A-Za-z]{3,9})[./ -]\d{4}|\d{4}[./]\d\d?[./]\d\d?)(?:[ T]\d\d?:.*)?")
OFFSET = re.compile(r"(?:UTC)?([+-])(\d\d):(\d\d)(?::00)?")
EPOCH = datetime.datetime(1970, 1, 1)
DAY = 86400.0
UNITS = {"days": DAY, "hours": 3600.0, "minutes": 60.0, "seconds": 1.0}
SEASONS = {"time of day": DAY, "day of week": 7 * DAY, "day of year": 365.2425 * DAY}
# Within so many seconds no zone changes its clocks.
SAME_OFFSET = 900
# A season is shown by dates over so many of its periods, of which this share of the steps is at most half a period.
FEWEST_PERIODS, SHORT_STEPS = 2.0, 0.1


@dataclass(frozen=True, eq=False)
class Dates:
    """A column of dates or times.

    - `seconds`, (n_rows,): since 1970, in UTC if there is a zone; NaN where they are missing.
    - `zone`: name of the time zone, empty without one.
    """

    seconds: FloatArray
    zone: str = ""

    def __len__(self) -> int:
        return len(self.seconds)

    @classmethod
    def of_numpy(cls, values: NDArray[Any], zone: str = "") -> Self:
        """Read an array of datetime64."""
        exact = values.astype("datetime64[us]")
        return cls(np.where(np.isnat(exact), np.nan, exact.astype(np.int64) / 1e6), zone)

    @classmethod
    def of_objects(cls, values: Sequence[Any], name: str) -> Self:
        """Read dates, times and timestamps of the standard library and NumPy; None where they are missing."""
        values = [v.item() if isinstance(v, np.datetime64) else v for v in values]  # NaT becomes None
        times = [v for v in values if isinstance(v, datetime.datetime)]
        zones = {"" if v.tzinfo is None else str(v.tzinfo) for v in times}
        if len(zones) > 1 and "" in zones:
            raise TypeError(f"{name} must hold times with a time zone or without, got both")
        zone = "UTC" if len(zones) > 1 else min(zones, default="")
        return cls(np.array([np.nan if v is None else _seconds(v) for v in values], dtype=np.float64), zone)

    @classmethod
    def of_texts(cls, values: Sequence[str], codes: NDArray[np.intp], name: str) -> Self | None:
        """Read a column of text, where blank is missing; None unless all others, and there are some, are dates."""
        if not all(ISO.fullmatch(v) or not v.strip() for v in values) or not any(map(str.strip, values)):
            return None  # the first other text ends the search
        try:
            dates = [datetime.datetime.fromisoformat(v.partition("[")[0]) if v.strip() else None for v in values]
        except ValueError as error:
            raise ValueError(f"{name} must hold dates that exist, got one of which {error}") from None
        own = cls.of_objects(dates, name)
        zones = {match[2] for match in map(ISO.fullmatch, values) if match is not None} - {None}
        zone = min(zones) if len(zones) == 1 else own.zone and "UTC"
        return cls(np.append(own.seconds, np.nan)[codes], zone)

    def texts(self) -> tuple[list[str], NDArray[np.intp]]:
        """Return the dates as text: different ones, and for each row which of them, −1 where it is missing."""
        known = ~np.isnan(self.seconds)
        different, where = np.unique(self.local()[known], return_inverse=True)
        codes = np.full(len(self), -1)
        codes[known] = where
        return [text.removesuffix("T00:00:00.000000") for text in _numpy(different).astype(str).tolist()], codes

    def local(self) -> FloatArray:
        """Return the seconds on the zone's own clocks."""
        if not self.zone:
            return self.seconds
        known = ~np.isnan(self.seconds)
        quarters, where = np.unique(np.floor(self.seconds[known] / SAME_OFFSET), return_inverse=True)
        local, zone = self.seconds.copy(), zone_of(self.zone)
        times = (datetime.datetime.fromtimestamp(quarter * SAME_OFFSET, zone) for quarter in quarters.tolist())
        offsets = [(time.utcoffset() or datetime.timedelta()).total_seconds() for time in times]
        local[known] += np.array(offsets)[where]
        return local


def is_date(text: str) -> bool:
    """Whether text is written as a date."""
    return ISO.fullmatch(text) is not None


def _seconds(value: datetime.date) -> float:
    if not isinstance(value, datetime.datetime):
        value = datetime.datetime(value.year, value.month, value.day)
    epoch = EPOCH if value.tzinfo is None else EPOCH.replace(tzinfo=datetime.UTC)
    return (value - epoch).total_seconds()


def _numpy(seconds: FloatArray) -> NDArray[np.datetime64]:
    return np.round(seconds * 1e6).astype(np.int64).view("datetime64[us]")


@cache
def zone_of(name: str) -> datetime.tzinfo:
    """Return a time zone; raise ValueError if its name is not known."""
    if offset := OFFSET.fullmatch(name):
        shift = datetime.timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        return datetime.timezone(-shift if offset[1] == "-" else shift)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # ZoneInfoNotFoundError is a KeyError
        raise ValueError(f"time zones must be known ones, such as 'UTC' or 'Europe/Berlin', got {name!r}") from None


@dataclass(frozen=True)
class Calendar:
    """How a column of dates is encoded: time since the first date, and a sine and a cosine for each season.

    - `column`: of the table.
    - `zone`: whose clocks tell seasons, empty without one.
    - `origin`: the first date, in seconds since 1970.
    """

    column: Annotated[int, AtLeast(0)]
    zone: str
    origin: float
    unit: Literal["days", "hours", "minutes", "seconds"]
    seasons: tuple[Literal["time of day", "day of week", "day of year"], ...]

    @classmethod
    def fit(cls, column: int, dates: Dates) -> Self:
        """Choose unit and seasons: those that dates repeat at least twice, in steps of at most half a period."""
        known = np.unique(dates.seconds[~np.isnan(dates.seconds)])
        origin, span = (float(known[0]), float(np.ptp(known))) if len(known) else (0.0, 0.0)
        step = float(np.quantile(np.diff(known), SHORT_STEPS)) if len(known) > 1 else np.inf
        seasons = [s for s, period in SEASONS.items() if span >= FEWEST_PERIODS * period and step <= period / 2]
        unit = next((unit for unit, size in UNITS.items() if span >= 2 * size), "seconds")
        return cls(column, dates.zone, origin, unit, tuple(seasons))  # type: ignore[arg-type]

    @property
    def width(self) -> int:
        """Number of encoded columns."""
        return 1 + 2 * len(self.seasons)

    def names(self, name: str) -> list[str]:
        """Return the names of the encoded columns, such as ``when (days)`` and ``when: day of week (sine)``."""
        return [f"{name} ({self.unit})", *(f"{name}: {s} ({f})" for s in self.seasons for f in ("sine", "cosine"))]

    def encode(self, dates: Dates, name: str) -> FloatArray:
        """Return the encoded columns, (n_rows, width), NaN where the date is missing."""
        if bool(dates.zone) != bool(self.zone):
            had, got = (f"in the time zone {zone!r}" if zone else "without a zone" for zone in (self.zone, dates.zone))
            raise TypeError(f"{name} must hold times {had}, as in fit, got times {got}")
        local = Dates(dates.seconds, self.zone).local()
        columns = [(dates.seconds - self.origin) / UNITS[self.unit]]
        for season in self.seasons:
            angle = 2 * np.pi * _phase(local, season)
            columns += [np.sin(angle), np.cos(angle)]
        return np.column_stack(columns)


def _phase(local: FloatArray, season: str) -> FloatArray:
    """Return the place of each time in its day, week (by whole days) or year, from 0 to below 1."""
    days = local / DAY
    if season == "time of day":
        return days % 1.0
    if season == "day of week":
        return (np.floor(days) + 3) % 7 / 7  # 1970 began on a Thursday
    phase, known = np.full(len(local), np.nan), ~np.isnan(local)
    time = _numpy(local[known])
    year = time.astype("datetime64[Y]")
    begin, end = year.astype(time.dtype), (year + np.timedelta64(1, "Y")).astype(time.dtype)
    phase[known] = (time - begin) / (end - begin)
    return phase
