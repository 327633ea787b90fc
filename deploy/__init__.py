"""What installs and watches Respool elsewhere: image, chart, unit, alerts, dashboard; and `make dist`."""
