-------------------------------- MODULE Merge --------------------------------
(* One region whose generations are merged: by drivers whose tasks share the work, by a merger in passes, and *)
(* beside an index commit that may erase marks. Anybody may sleep at any step, and others then take the lease. *)
(* One key, which every generation has; even ones delete it. The base's row is the number of the generation    *)
(* that it is of, 0 for none.                                                                                 *)
EXTENDS Naturals, Sequences
CONSTANTS Drivers, Mergers, MaxVersions, MaxBegins, Generations, Breaks
VARIABLES log,      \* versions of the base: what made it, the key's row, the progress, the pass shard's token
          flushed,  \* generations that there are
          holder,   \* of the lease
          pc, at,   \* of each process: its next step, and the version that its next commit begins with
          job,      \* first and last generation that it merges, its passes so far, whether the row is in the first
          begins, old  \* how often anybody began; of the rewriter: the marks that its commit has passed over
vars == <<log, flushed, holder, pc, at, job, begins, old>>
Procs == Drivers \cup Mergers \cup {"R"}
Pass == 10                                             \* a token: generation and number of the pass
Last == 9
V(k, row, m, t) == [k |-> k, row |-> row, m |-> m, t |-> t]
Tip == log[Len(log)]
Since(v, kinds) == \E i \in v + 1 .. Len(log) : log[i].k \in kinds
Absent(row) == row % 2 = 0
Room == Len(log) < MaxVersions
NoJob == [first |-> 0, last |-> 0, done |-> 0, early |-> FALSE]
Init == /\ log = <<V("up", 0, 0, 0)>> /\ flushed \in 1 .. Generations /\ holder = "none" /\ begins = 0
        /\ pc = [p \in Procs |-> "idle"] /\ at = [p \in Procs |-> 0] /\ job = [p \in Procs |-> NoJob] /\ old = [m |-> 0, t |-> 0]
Flush == /\ flushed < Generations /\ flushed' = flushed + 1 /\ UNCHANGED <<log, holder, pc, at, job, begins, old>>
Go(p, step, v) == pc' = [pc EXCEPT ![p] = step] /\ at' = [at EXCEPT ![p] = v]

(* What Lance takes. Marks must be greater than those of the newest version; whether it also looks at those   *)
(* that were erased, or at rows, is left open: here it does not.                                              *)
TakesMarks(v, t, m) == ~Since(v, {"columns"}) /\ t > Tip.t /\ m >= Tip.m
TakesColumns(v) == ~Since(v, {"up", "columns"})
TakesIndex(v) == ~Since(v, {"index", "columns"})
(* A commit that is refused ends the attempt; so does a failure. *)
Stop(p) == /\ pc[p] # "idle" /\ p # "R" /\ Go(p, "idle", 0) /\ job' = [job EXCEPT ![p] = NoJob]
           /\ UNCHANGED <<log, flushed, holder, begins, old>>
Up(p, row, m, step) ==
  LET j == job[p] t == j.first * Pass + (IF step = "idle" /\ p \in Mergers THEN Last ELSE j.done + 1) IN
  /\ Room /\ TakesMarks(at[p], t, m) /\ log' = Append(log, V("up", row, m, t)) /\ Go(p, step, Len(log) + 1)
  /\ job' = [job EXCEPT ![p] = IF step = "idle" THEN NoJob ELSE [@ EXCEPT !.done = j.done + 1]]
  /\ UNCHANGED <<flushed, holder, begins, old>>

(* Whoever begins takes the lease, and commits the details again if its holder may be about to commit some.   *)
Begin(p) ==
  /\ pc[p] = "idle" /\ p # "R" /\ begins < MaxBegins /\ begins' = begins + 1 /\ holder' = p /\ Tip.m < flushed
  /\ IF pc["R"] = "rewrite" /\ TakesIndex(at["R"]) /\ "noDetails" \notin Breaks
     THEN Room /\ log' = Append(log, [Tip EXCEPT !.k = "index"]) ELSE log' = log
  /\ LET g == Tip.m + 1 done == IF Tip.t \div Pass = g THEN Tip.t % Pass ELSE 0 IN
     /\ \E last \in g .. flushed, early \in BOOLEAN :
           job' = [job EXCEPT ![p] = [first |-> g, last |-> last, done |-> done, early |-> early]]
     /\ Go(p, IF p \in Drivers THEN "mark" ELSE IF done > 0 /\ "noFence" \notin Breaks THEN "fence" ELSE "pass", Len(log'))
  /\ UNCHANGED <<flushed, old>>

(* A merger in passes. Several generations take one pass, one may take two. *)
Fence(p) == /\ pc[p] = "fence" /\ Room /\ TakesColumns(at[p]) /\ log' = Append(log, [Tip EXCEPT !.k = "columns"])
            /\ Go(p, "pass", Len(log) + 1) /\ UNCHANGED <<flushed, holder, job, begins, old>>
First(p) == /\ pc[p] = "pass" /\ job[p].first = job[p].last
            /\ Up(p, IF job[p].early THEN job[p].last ELSE Tip.row, Tip.m, "second")
Only(p) == pc[p] = "pass" /\ Up(p, job[p].last, job[p].last, "idle")
Second(p) == pc[p] = "second" /\ Up(p, IF job[p].early THEN Tip.row ELSE job[p].last, job[p].last, "idle")

(* A driver: a mark "part of these", the fragments of its tasks, the progress. *)
Mark(p) == /\ pc[p] = "mark"
           /\ IF "noMark" \in Breaks THEN Go(p, "renew", at[p]) /\ UNCHANGED <<log, flushed, holder, job, begins, old>>
              ELSE Up(p, Tip.row, Tip.m, "renew")
Renew(p) == /\ pc[p] = "renew" /\ (holder = p \/ "noRenew" \in Breaks) /\ Go(p, "columns", at[p])
            /\ UNCHANGED <<log, flushed, holder, job, begins, old>>
Columns(p) ==
  /\ pc[p] = "columns"
  /\ IF Absent(log[at[p]].row) /\ Absent(job[p].last) /\ "onlyChanged" \in Breaks
     THEN Go(p, "progress", at[p]) /\ log' = log
     ELSE /\ Room /\ TakesColumns(at[p])
          /\ log' = Append(log, V("columns", job[p].last, Tip.m, Tip.t)) /\ Go(p, "progress", Len(log) + 1)
  /\ UNCHANGED <<flushed, holder, job, begins, old>>
Progress(p) == pc[p] = "progress" /\ Up(p, Tip.row, job[p].last, "idle")

(* The rewriter of details: its commit has the marks of the version that it read. Then it puts those back that *)
(* it has passed over, unless somebody has merged since.                                                       *)
Read == /\ pc["R"] = "idle" /\ begins < MaxBegins /\ begins' = begins + 1 /\ holder' = "R" /\ Go("R", "rewrite", Len(log))
        /\ UNCHANGED <<log, flushed, job, old>>
Rewrite == /\ pc["R"] = "rewrite" /\ Room /\ TakesIndex(at["R"])
           /\ LET read == log[at["R"]] IN log' = Append(log, V("index", Tip.row, read.m, read.t))
           /\ old' = [m |-> Tip.m, t |-> Tip.t] /\ Go("R", "restore", Len(log) + 1)
           /\ UNCHANGED <<flushed, holder, job, begins>>
Restore == /\ pc["R"] = "restore" /\ Go("R", "idle", 0) /\ old' = [m |-> 0, t |-> 0]
           /\ LET own == log[at["R"]] IN
              IF old.t > own.t /\ ((Tip.m = own.m /\ Tip.t = own.t) \/ "restoreAnyway" \in Breaks) /\ old.t >= Tip.t
              THEN Room /\ log' = Append(log, V("up", Tip.row, old.m, old.t)) ELSE log' = log
           /\ UNCHANGED <<flushed, holder, job, begins>>
Refused == /\ pc["R"] = "rewrite" /\ ~TakesIndex(at["R"]) /\ Go("R", "idle", 0)
           /\ UNCHANGED <<log, flushed, holder, job, begins, old>>
Next == Flush \/ Read \/ Rewrite \/ Restore \/ Refused
        \/ \E p \in Drivers \cup Mergers : \/ Stop(p) \/ Begin(p) \/ Fence(p) \/ First(p) \/ Only(p) \/ Second(p)
                                           \/ Mark(p) \/ Renew(p) \/ Columns(p) \/ Progress(p)
Spec == Init /\ [][Next]_vars
(* A row is never older than the progress: readers take what is newer from the generations. *)
Right == \A i \in 1 .. Len(log) : \/ log[i].row >= log[i].m
                                  \/ Absent(log[i].row) /\ Absent(log[i].m)
Merged == Tip.m < Generations
=============================================================================
