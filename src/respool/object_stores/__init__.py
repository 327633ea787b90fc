"""Object stores behind `ports.object_store`: a folder, S3, GCS, Azure and HDFS. Brokers and clients use them."""
