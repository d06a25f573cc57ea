-- Parses the field `turn` of a state: r if the turn runs, else d, s, f or l for its outcome (done, stopped, failed, lost);
-- its generation, its holder, its name and the first seq of its question. An unreadable field counts as no turn.
-- READS turn
-- SETS status seen_generation seen_holder seen_name seen_first_seq
local status, seen_generation, seen_holder, seen_name, seen_first_seq =
  string.match(turn or '', '^([rdsfl]) (%d+%-%x+) (%x+) (%x+) (%d+)$')
