-- Answers who the server's process is, as the record has it; nothing if it does not tell.
-- include info
return run or ''
