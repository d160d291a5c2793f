-- `attribute_era` names the column, and has the queue, labels and annotations of pods too.
UPDATE attribute_era SET kind = CASE kind WHEN 'pod' THEN 'pod.team' ELSE 'device.node' END;
