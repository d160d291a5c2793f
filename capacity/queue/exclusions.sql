-- The newest restart elsewhere of one object that took effect before a time.
SELECT i.document
FROM action AS i
WHERE
    i.cluster = $cluster
    AND i.kind = 'intent'
    AND i.ts < $until::TIMESTAMP
    AND (i.document ->> '$.action.intent.capability') = 'restart elsewhere'
    AND (i.document ->> '$.action.intent.target.uid') = $uid
    AND EXISTS (
        SELECT 1 FROM action AS o
        WHERE
            o.cluster = i.cluster
            AND o.about = i.about
            AND o.kind = 'outcome'
            AND (o.document ->> '$.result') = 'done'
    )
ORDER BY i.seq DESC
LIMIT 1
