------------------------------ MODULE Verdict ------------------------------
(* Where a verdict is found once the record of a transaction is not (V1 to V5): the table that had *)
(* it is dropped, one of the other tables is copied alone, or the file is lost. One transaction     *)
(* over a region of its home and the regions of another table. Txn.tla has how a record comes to be.*)
EXTENDS FiniteSets, TLC
CONSTANTS Sides,                    \* the regions of the other table
          Lost, Copies,             \* whether the record's file may be lost; whether the table is copied
          Breaks
VARIABLES st, acked,                \* the coordinator; whether its caller was told
          rec, home, handed,        \* the record; whether home is there; a copy of the record, put by a drop
          at, copy                  \* by region: what is in storage; the same of a copy of the other table
vars == <<st, acked, rec, home, handed, at, copy>>
H == "home"
Regions == Sides \cup {H}
Sym == Permutations(Sides)
(* int: the intent has landed. own: who has claimed the region, and mem: what it knows. note: the  *)
(* verdict in the first entry behind the intent; ghost on: the verdict that its writer knew. gen:    *)
(* whether a flush has passed the intent, and with its rows. man: whether the manifest names it as  *)
(* committed.                                                                                        *)
Empty == [int |-> FALSE, own |-> "P", mem |-> "open", note |-> "open", on |-> "open", gen |-> "open", man |-> FALSE]
NoCopy == [on |-> FALSE, at |-> [r \in Sides |-> Empty], handed |-> FALSE]
Init == /\ st = "put" /\ acked = FALSE /\ rec = "open" /\ home = TRUE /\ handed = FALSE
        /\ at = [r \in Regions |-> Empty] /\ copy = NoCopy
(* V1: the entry behind an intent has its verdict. V4: of a table whose home is gone all regions say *)
(* the same, and nobody's word is no.                                                                *)
Says(s, r) == s[r].note = "yes" \/ s[r].man
Siblings(s) == "noSiblings" \notin Breaks /\ \E r \in Sides : Says(s, r)
Found(s, r, record, there, hand) ==
  IF record = "yes" THEN record
  ELSE IF s[r].note # "open" /\ "noteLast" \notin Breaks THEN s[r].note
  ELSE IF record # "open" THEN record
  ELSE IF s[r].note # "open" THEN s[r].note
  ELSE IF there THEN "open"
  ELSE IF hand \/ Siblings(s) \/ "goneCounts" \in Breaks THEN "yes" ELSE "no"
Here(r) == Found(at, r, rec, home, handed)
There(r) == Found(copy.at, r, "open", FALSE, copy.handed)
Reads(s, r, found) == s[r].gen = "yes" \/ (s[r].gen = "open" /\ s[r].int /\ found = "yes")
(* The coordinator. *)
Put(r) == /\ st = "put" /\ at[r].own = "P" /\ ~at[r].int /\ at' = [at EXCEPT ![r].int = TRUE]
          /\ UNCHANGED <<st, acked, rec, home, handed, copy>>
Knows(v) == at' = [r \in Regions |-> IF at[r].own = "P" THEN [at[r] EXCEPT !.mem = v] ELSE at[r]]
Record == /\ st = "put" /\ \A r \in Regions : at[r].int
          /\ rec' = IF rec = "open" THEN "yes" ELSE rec
          /\ st' = rec' /\ acked' = (rec' = "yes") /\ Knows(rec') /\ UNCHANGED <<home, handed, copy>>
GiveUp == /\ st = "put" /\ st' = "no" /\ Knows("no") /\ UNCHANGED <<acked, rec, home, handed, copy>>
Crash == /\ st # "dead" /\ st' = "dead"
         /\ at' = [r \in Regions |-> IF at[r].own = "P" THEN [at[r] EXCEPT !.own = "none", !.mem = "open"] ELSE at[r]]
         /\ UNCHANGED <<acked, rec, home, handed, copy>>
(* T8: a claimant decides. Where home is gone there is no place for a record: its next entry says it. *)
Claim(r) == /\ at[r].gen = "open" /\ at' = [at EXCEPT ![r].own = "Q", ![r].mem = IF ~at[r].int \/ Here(r) = "open" THEN "no" ELSE Here(r)]
            /\ rec' = IF at[r].int /\ Here(r) = "open" THEN "no" ELSE rec
            /\ UNCHANGED <<st, acked, home, handed, copy>>
Write(s, r) == [s EXCEPT ![r].on = IF Lost THEN s[r].mem ELSE "open", ![r].note = IF s[r].int /\ "noNote" \notin Breaks THEN s[r].mem ELSE @]
Flush(s, r) == [s EXCEPT ![r].gen = s[r].mem, ![r].man = s[r].mem = "yes" /\ s[r].int /\ "noManifest" \notin Breaks]
Next1(r) == /\ at[r].mem # "open" /\ UNCHANGED <<st, acked, rec, home, handed, copy>>
            /\ \/ at[r].note = "open" /\ at' = Write(at, r)
               \/ at[r].gen = "open" /\ at' = Flush(at, r)
               \/ at[r].gen # "open" /\ at' = [at EXCEPT ![r].note = "open", ![r].int = FALSE]   \* collected
(* T14 *)
Forget == /\ rec = "no" /\ st # "put" /\ rec' = "open" /\ UNCHANGED <<st, acked, home, handed, at, copy>>
(* V5: a drop claims the regions of the table first, and so settles what is open; it gives committed *)
(* records to the other tables, and leaves aborted ones for as long as a coordinator may put one.    *)
Drop == /\ home /\ home' = FALSE
        /\ LET decided == IF rec = "open" /\ "dropOpen" \notin Breaks THEN "no" ELSE rec IN
           /\ handed' = (decided = "yes" /\ "noHanding" \notin Breaks)
           /\ rec' = IF decided = "yes" \/ "dropAborted" \in Breaks THEN "open" ELSE decided
        /\ at' = IF "dropOpen" \in Breaks THEN at ELSE [at EXCEPT ![H].own = "Q", ![H].mem = "no"]
        /\ UNCHANGED <<st, acked, copy>>
Lose == /\ Lost /\ rec = "yes" /\ st # "put" /\ home /\ rec' = "open" /\ UNCHANGED <<st, acked, home, handed, at, copy>>
(* A copy of the other table, alone; somebody writes it. *)
Copy == /\ Copies /\ ~copy.on /\ copy' = [on |-> TRUE, handed |-> handed, at |-> [r \in Sides |-> [at[r] EXCEPT !.own = "none", !.mem = "open"]]]
        /\ UNCHANGED <<st, acked, rec, home, handed, at>>
InCopy(r) == /\ copy.on /\ UNCHANGED <<st, acked, rec, home, handed, at>>
             /\ \/ copy.at[r].gen = "open" /\ copy' = [copy EXCEPT !.at[r].mem = IF copy.at[r].int THEN There(r) ELSE "no"]
                \/ copy.at[r].mem # "open" /\ copy.at[r].note = "open" /\ copy' = [copy EXCEPT !.at = Write(@, r)]
                \/ copy.at[r].mem # "open" /\ copy.at[r].gen = "open" /\ copy' = [copy EXCEPT !.at = Flush(@, r)]
Next == \/ \E r \in Regions : Put(r) \/ Claim(r) \/ Next1(r)
        \/ Record \/ GiveUp \/ Crash \/ Forget \/ Drop \/ Lose \/ Copy \/ \E r \in Sides : InCopy(r)
Spec == Init /\ [][Next]_vars
InHere(r) == Reads(at, r, Here(r))
InThere(r) == Reads(copy.at, r, There(r))
(* A refused transaction is nowhere; an acknowledged one is where it was, if the file is not lost. *)
Refused == ~acked => \A r \in Sides : ~InHere(r) /\ ~InThere(r)
Acked == acked => \A r \in Sides : InHere(r)
Whole == /\ (\E r \in Sides : InHere(r)) => \A r \in Sides : InHere(r)
         /\ (\E r \in Sides : InThere(r)) => \A r \in Sides : InThere(r)
(* Where the record is lost, a region keeps what its writer has written on behind. *)
Kept == \A r \in Sides : acked /\ at[r].on = "yes" => InHere(r)
=============================================================================
