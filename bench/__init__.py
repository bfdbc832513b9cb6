"""`make bench`: Penstock beside Apache Kafka in one run, on the same bytes, alternating, medians of several rounds."""
