-- The clusters of devices, nodes and pods.
SELECT cluster FROM device
UNION
SELECT cluster FROM node
UNION
SELECT cluster FROM pod
ORDER BY cluster
