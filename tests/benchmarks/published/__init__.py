"""``estimate`` held against figures that others published."""
