-- The copy of the journal takes the names of event types of today (fallow/renamed.csv); the journal
-- itself stays as it was written.
UPDATE action SET
    kind = CASE kind
        WHEN 'noticed' THEN 'notified'
        WHEN 'unnoticed' THEN 'notification-failed'
        WHEN 'asked' THEN 'approval-requested'
        WHEN 'kept' THEN 'keep'
        WHEN 'given' THEN 'snapshot-restored'
        WHEN 'restored' THEN 'reversed'
        WHEN 'undoing' THEN 'undo-started'
        WHEN 'unsending' THEN 'undo-sending'
        WHEN 'unsent' THEN 'undo-sent'
        WHEN 'ended' THEN 'object-gone'
        ELSE kind
    END
WHERE kind IN (
    'noticed', 'unnoticed', 'asked', 'kept', 'given',
    'restored', 'undoing', 'unsending', 'unsent', 'ended'
);
