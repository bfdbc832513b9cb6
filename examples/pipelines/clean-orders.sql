-- The pipeline of clean-orders.yml in SQL.
SET name = 'clean-orders-sql';
SET trigger = '500 ms';
CREATE SOURCE orders WITH (
  topic = 'orders',
  format.type = 'json',
  format.schema = 'id STRING, amount DOUBLE, country STRING, at TIMESTAMP'
);
CREATE VIEW clean AS
  SELECT id, amount, upper(trim(country)) AS country, at FROM orders WHERE NOT _tombstone;
EXPECT clean (id IS NOT NULL) ELSE DEAD LETTER;
EXPECT clean (amount > 0) ELSE DROP;
CREATE SINK out FROM clean WITH (topic = 'orders.clean', key = 'id', compression = 'lz4');
