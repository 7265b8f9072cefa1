------------------------------- MODULE Raise --------------------------------
(* Raising a table to version 2, beside programs of version 1 that have it open and know nothing of *)
(* transactions: record, base version, claim of every region, and a record that says it is done.    *)
(* An old program looks at the record once a claim's epoch is committed, before a flush, and when   *)
(* it meets a new base version.                                                                     *)
EXTENDS Naturals, Sequences, FiniteSets, TLC
CONSTANTS Regions, MaxLog, MaxBase, Breaks
VARIABLES log,            \* by region: "row", "int" (an intent without a record), "fence"
          owner, ep,      \* by region: who claimed it last, "O"ld, "U" (raiser) or "T" (coordinator); its epoch
          gen, after,     \* by region: whether rows of an intent are in a generation; replay_after
          record, base,   \* the record: 1, "raising" = 2, "done" = 3; the newest base version
          u, begun,       \* the raiser: its next step; whether a transaction has begun
          o, mem,         \* the old writer by region: state and epoch; whether it replayed an intent as rows
          rd              \* an old reader: the base version that it met, its state, ghost: it began late
Sym == Permutations(Regions)
vars == <<log, owner, ep, gen, after, record, base, u, begun, o, mem, rd>>
Init == /\ log = [r \in Regions |-> <<>>] /\ owner = [r \in Regions |-> "O"] /\ ep = [r \in Regions |-> 1]
        /\ gen = [r \in Regions |-> FALSE] /\ after = [r \in Regions |-> 0] /\ record = 1 /\ base = 1
        /\ u = 1 /\ begun = FALSE /\ o = [r \in Regions |-> [st |-> "own", e |-> 1]]
        /\ mem = [r \in Regions |-> FALSE] /\ rd = [base |-> 1, st |-> "idle", late |-> FALSE]
End(r) == Len(log[r])
Room(r) == End(r) < MaxLog
(* The raiser. Whoever finds "raising" does it again from the start, which is harmless. *)
Steps == IF "claimFirst" \in Breaks THEN <<"claim", "record", "base", "done">>
         ELSE IF "baseFirst" \in Breaks THEN <<"base", "record", "claim", "done">>
         ELSE IF "noBase" \in Breaks THEN <<"record", "claim", "done">>
         ELSE IF "noClaims" \in Breaks THEN <<"record", "base", "done">>
         ELSE <<"record", "base", "claim", "done">>
Raise == /\ u <= Len(Steps)
         /\ CASE Steps[u] = "record" -> record' = 2 /\ u' = u + 1 /\ UNCHANGED <<base, owner, ep, log>>
              [] Steps[u] = "base" -> base < MaxBase /\ base' = base + 1 /\ u' = u + 1 /\ UNCHANGED <<record, owner, ep, log>>
              [] Steps[u] = "done" -> record' = 3 /\ u' = u + 1 /\ UNCHANGED <<base, owner, ep, log>>
              [] Steps[u] = "claim" ->
                   /\ UNCHANGED <<record, base>>
                   /\ \/ (\A r \in Regions : owner[r] # "O") /\ u' = u + 1 /\ UNCHANGED <<owner, ep, log>>
                      \/ \E r \in Regions : /\ owner[r] = "O" /\ Room(r) /\ owner' = [owner EXCEPT ![r] = "U"]
                                            /\ ep' = [ep EXCEPT ![r] = @ + 1]
                                            /\ log' = [log EXCEPT ![r] = Append(@, "fence")] /\ UNCHANGED u
         /\ UNCHANGED <<gen, after, begun, o, mem, rd>>
Crash == /\ u \in 2..Len(Steps) /\ u' = 1 /\ UNCHANGED <<log, owner, ep, gen, after, record, base, begun, o, mem, rd>>
(* A coordinator: once the record says "done" it claims a region and puts an intent. *)
Raised == record = 3 \/ (record = 2 /\ "trustRecord" \in Breaks)
Take(r) == /\ Raised /\ owner[r] # "T" /\ Room(r) /\ owner' = [owner EXCEPT ![r] = "T"]
           /\ ep' = [ep EXCEPT ![r] = @ + 1] /\ log' = [log EXCEPT ![r] = Append(@, "fence")]
           /\ UNCHANGED <<gen, after, record, base, u, begun, o, mem, rd>>
Intent(r) == /\ Raised /\ owner[r] = "T" /\ Room(r) /\ log' = [log EXCEPT ![r] = Append(@, "int")]
             /\ begun' = TRUE /\ UNCHANGED <<owner, ep, gen, after, record, base, u, o, mem, rd>>
(* The old writer: it replays, commits its epoch, fences, looks at the record, appends, flushes. *)
OldReplay(r) == /\ o[r].st = "out" /\ o' = [o EXCEPT ![r] = [st |-> "replayed", e |-> ep[r] + 1]]
                /\ mem' = [mem EXCEPT ![r] = \E p \in after[r] + 1 .. End(r) : log[r][p] = "int"]
                /\ UNCHANGED <<log, owner, ep, gen, after, record, base, u, begun, rd>>
OldClaim(r) == /\ o[r].st = "replayed"
               /\ IF o[r].e = ep[r] + 1 /\ Room(r)
                  THEN /\ owner' = [owner EXCEPT ![r] = "O"] /\ ep' = [ep EXCEPT ![r] = o[r].e]
                       /\ log' = [log EXCEPT ![r] = Append(@, "fence")]
                       /\ o' = [o EXCEPT ![r].st = IF "noCheck" \in Breaks THEN "own" ELSE "check"]
                  ELSE o' = [o EXCEPT ![r].st = "out"] /\ UNCHANGED <<owner, ep, log>>
               /\ UNCHANGED <<gen, after, record, base, u, begun, mem, rd>>
OldCheck(r) == /\ o[r].st = "check" /\ o' = [o EXCEPT ![r].st = IF record = 1 THEN "own" ELSE "refused"]
               /\ UNCHANGED <<log, owner, ep, gen, after, record, base, u, begun, mem, rd>>
OldRow(r) == /\ o[r].st = "own"
             /\ IF ep[r] = o[r].e THEN Room(r) /\ log' = [log EXCEPT ![r] = Append(@, "row")] /\ UNCHANGED o
                ELSE o' = [o EXCEPT ![r].st = "out"] /\ UNCHANGED log
             /\ UNCHANGED <<owner, ep, gen, after, record, base, u, begun, mem, rd>>
OldFlush(r) == /\ o[r].st = "own" /\ ep[r] = o[r].e /\ End(r) > after[r] /\ (record = 1 \/ "noCheck" \in Breaks)
               /\ after' = [after EXCEPT ![r] = End(r)] /\ gen' = [gen EXCEPT ![r] = @ \/ mem[r]]
               /\ mem' = [mem EXCEPT ![r] = FALSE]
               /\ UNCHANGED <<log, owner, ep, record, base, u, begun, o, rd>>
(* An old reader with an open handle. What it reads of the log is not followed: it must not get there. *)
OldQuery == /\ rd.st = "idle" /\ rd' = [rd EXCEPT !.st = "base", !.late = begun]
            /\ UNCHANGED <<log, owner, ep, gen, after, record, base, u, begun, o, mem>>
OldLook == /\ rd.st = "base"
           /\ rd' = [rd EXCEPT !.base = base, !.st = IF base # rd.base /\ record > 1 THEN "refused" ELSE "tails"]
           /\ UNCHANGED <<log, owner, ep, gen, after, record, base, u, begun, o, mem>>
OldTails == /\ rd.st = "tails" /\ rd' = [rd EXCEPT !.st = "idle"]
            /\ UNCHANGED <<log, owner, ep, gen, after, record, base, u, begun, o, mem>>
Next == \/ Raise \/ Crash \/ OldQuery \/ OldLook \/ OldTails
        \/ \E r \in Regions : \/ Take(r) \/ Intent(r)
                              \/ OldReplay(r) \/ OldClaim(r) \/ OldCheck(r) \/ OldRow(r) \/ OldFlush(r)
Spec == Init /\ [][Next]_vars
NoRows == \A r \in Regions : ~gen[r]                  \* no intent is flushed as if it were committed
OldReads == rd.st = "tails" => ~rd.late               \* no old query that begins later reads a log
OldWrites == record = 3 => \A r \in Regions : o[r].st = "own" => ep[r] # o[r].e   \* old writers are out
(* Not promised: an old query that began before the base version may read the log of a transaction. *)
OldWhole == rd.st = "tails" => ~begun
=============================================================================
