"""The cities of the rides: size, location, price level and local time.

A city's local time is UTC plus a fixed difference all year round: daylight saving time would need a time zone database,
whose versions differ between machines.
"""

from dataclasses import dataclass

from respool.model.errors import RespoolError


class BadPlan(RespoolError, ValueError):
    """An invalid plan; the message names the argument and its valid values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class City:
    name: str
    # Share of the demand: relative to the sum of all cities' sizes.
    size: int
    lat: float
    lon: float
    # The cosine of the latitude: a degree of longitude is shorter than one of latitude by this factor.
    lon_scale: float
    utc_minutes: int
    currency: str
    # Price level of rides, in percent of the price in euros.
    price_percent: int


def _city(
    name: str, size: int, place: tuple[float, float, float], minutes: int, money: tuple[str, int]
) -> City:
    lat, lon, lon_scale = place
    currency, price_percent = money
    return City(
        name=name,
        size=size,
        lat=lat,
        lon=lon,
        lon_scale=lon_scale,
        utc_minutes=minutes,
        currency=currency,
        price_percent=price_percent,
    )


# Sorted by size, which decreases roughly as 1/rank. `--cities 5` takes the first five.
CITIES = (
    _city("London", 100, (51.5072, -0.1276, 0.622), 0, ("GBP", 95)),
    _city("New York", 84, (40.7128, -74.0060, 0.758), -300, ("USD", 120)),
    _city("São Paulo", 66, (-23.5505, -46.6333, 0.917), -180, ("BRL", 210)),
    _city("Berlin", 48, (52.5200, 13.4050, 0.609), 60, ("EUR", 100)),
    _city("Mumbai", 44, (19.0760, 72.8777, 0.945), 330, ("INR", 2900)),
    _city("Paris", 40, (48.8566, 2.3522, 0.658), 60, ("EUR", 112)),
    _city("Warszawa", 26, (52.2297, 21.0122, 0.613), 60, ("PLN", 260)),
    _city("Köln", 22, (50.9375, 6.9603, 0.630), 60, ("EUR", 98)),
    _city("Zürich", 17, (47.3769, 8.5417, 0.677), 60, ("CHF", 185)),
    _city("Kraków", 13, (50.0647, 19.9450, 0.642), 60, ("PLN", 240)),
    _city("Malmö", 9, (55.6050, 13.0038, 0.565), 60, ("SEK", 1150)),
    _city("Bonn", 6, (50.7374, 7.0982, 0.633), 60, ("EUR", 92)),
)


def cities_from(text: str) -> tuple[City, ...]:
    """Parse `5` as the five largest cities, and `Köln,Bonn` as these.

    Raises:
        BadPlan: the number is too large, or a name is unknown.
    """
    if text.strip().isdecimal():
        number = int(text)
        if not 1 <= number <= len(CITIES):
            raise BadPlan(f"there are {len(CITIES)} cities, so their number is 1 to {len(CITIES)}")
        return CITIES[:number]
    known = {city.name.casefold(): city for city in CITIES}
    names = [name.strip().casefold() for name in text.split(",")]
    if len(set(names)) < len(names):
        raise BadPlan(f"a city comes twice in {text!r}")
    for name in names:
        if name not in known:
            raise BadPlan(
                f"there is no city {name!r}; there are {', '.join(city.name for city in CITIES)}"
            )
    return tuple(known[name] for name in names)
