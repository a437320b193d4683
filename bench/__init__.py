"""Measurements: speed (`make bench`), effects of deviations (`make deviations`) and walks (`make walks`)."""

from mule.core.threads import share_cores

share_cores()  # as every command does, before torch is loaded
