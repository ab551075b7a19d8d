-- Answers the identity of the server's process, like the record; empty if the server hides it.
-- include info
return run or ''
