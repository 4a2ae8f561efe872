"""The SQL store of studies, measurements and fronts: the only door to SQLAlchemy."""
