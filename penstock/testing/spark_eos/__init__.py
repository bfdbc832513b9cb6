"""The exactly-once proofs on Spark: `python -m penstock.testing.spark_eos`, in rooms of their own."""
