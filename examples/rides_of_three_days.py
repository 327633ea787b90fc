"""The last three days of rides, by city, as a DuckDB query. Run it against a broker that has a topic `rides`:

python examples/rides_of_three_days.py 127.0.0.1:9092
"""

# %%
import sys
from datetime import timedelta

import duckdb

import respool

BROKER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"

# %% What was asked for: five lines.
rides = respool.read_table("rides", bootstrap=BROKER, since=timedelta(days=3))
by_city = duckdb.sql("""
    select decode(value)->>'city' as city, count(*) as rides, sum((decode(value)->>'fare')::double) as fares
    from rides group by city order by rides desc, city
""")

# %%
by_city.show()
