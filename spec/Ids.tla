-------------------------------- MODULE Ids ---------------------------------
(* One id, used for several attempts (3.4, T9): retries after a crash or in doubt, and two processes *)
(* at once. Where the record of an id says "aborted", the next attempt takes the id's successor.     *)
(* Settling at a claim is one step here, since Txn.tla has it in detail.                             *)
EXTENDS Naturals, Sequences, FiniteSets, TLC
CONSTANTS Procs, Regions, Tries, MaxLog, MaxChain, Breaks
VARIABLES log, owner,      \* by region: the attempts of its intents, 0 for a fence; who claimed it
          mem, after, gen, \* by region: unflushed attempts in the owner's MemTable; replay_after; flushed
          rec, kept,       \* by place in the chain of ids: the record; what a long-lived reader keeps
          at,              \* by attempt: its process, state, place in the chain, participants, positions
          late             \* attempts in doubt, whose record may still land
vars == <<log, owner, mem, after, gen, rec, kept, at, late>>
NoOne == "no one"
Absent == [v |-> "absent", by |-> 0]
Aborted == [v |-> "aborted", by |-> 0]
Committed(i) == [v |-> "committed", by |-> i]
Attempts == 1..Tries
Links == 1..MaxChain
Sym == Permutations(Procs) \cup Permutations(Regions)
New == [st |-> "new", by |-> NoOne, n |-> 0, parts |-> {}, pos |-> [r \in Regions |-> 0]]
Init == /\ log = [r \in Regions |-> <<>>] /\ owner = [r \in Regions |-> NoOne]
        /\ mem = [r \in Regions |-> {}] /\ after = [r \in Regions |-> 0] /\ gen = [r \in Regions |-> {}]
        /\ rec = [n \in Links |-> Absent] /\ kept = [n \in Links |-> Absent]
        /\ at = [i \in Attempts |-> New] /\ late = {}
End(r) == Len(log[r])
Moving == {i \in Attempts : at[i].st \in {"begun", "put", "apply"}}
Holders(r) == {i \in Moving : at[i].st # "begun" /\ r \in at[i].parts /\ owner[r] = at[i].by}
(* An intent counts if its record is committed and lists its position. *)
CountsBy(record, i) == record.v = "committed" /\ (record.by = i \/ "anyPosition" \in Breaks)
Counted(r) == {i \in Attempts : at[i].pos[r] > after[r] /\ CountsBy(rec[at[i].n], i)}
Undecided(r) == {i \in Attempts : at[i].pos[r] > after[r] /\ rec[at[i].n] = Absent}
(* The look follows the chain of aborted records; a committed one ends the retry. *)
Look(i, p) == /\ at[i].st = "new" /\ \A j \in 1..i - 1 : at[j].st # "new"
              /\ \E n \in Links :
                   /\ \A m \in 1..n - 1 : rec[m].v = "aborted"
                   /\ rec[n].v # "aborted"
                   /\ \E S \in SUBSET Regions \ {{}} :   \* each attempt may have others
                        at' = [at EXCEPT ![i] = [New EXCEPT !.by = p, !.n = n, !.parts = S,
                                 !.st = IF rec[n].v = "committed" THEN "skipped" ELSE "begun"]]
              /\ UNCHANGED <<log, owner, mem, after, gen, rec, kept, late>>
(* A process claims a region again when its own transactions there are over (their slots). *)
Claim(p, r) == /\ owner[r] # p /\ End(r) < MaxLog /\ \E i \in Moving : at[i].by = p /\ r \in at[i].parts
               /\ \A i \in Moving : at[i].by = p /\ r \in at[i].parts => at[i].st = "begun"
               /\ LET settled == [n \in Links |-> IF \E i \in Undecided(r) : at[i].n = n THEN Aborted ELSE rec[n]] IN
                  /\ rec' = settled
                  /\ mem' = [mem EXCEPT ![r] = {i \in Attempts : at[i].pos[r] > after[r] /\ CountsBy(settled[at[i].n], i)}]
               /\ owner' = [owner EXCEPT ![r] = p] /\ log' = [log EXCEPT ![r] = Append(@, 0)]
               /\ UNCHANGED <<after, gen, kept, at, late>>
Slots(i) == /\ at[i].st = "begun" /\ \A r \in at[i].parts : owner[r] = at[i].by /\ Holders(r) = {}
            /\ at' = [at EXCEPT ![i].st = "put"] /\ UNCHANGED <<log, owner, mem, after, gen, rec, kept, late>>
Put(i, r) == /\ at[i].st = "put" /\ r \in at[i].parts /\ at[i].pos[r] = 0
             /\ IF owner[r] # at[i].by
                THEN at' = [at EXCEPT ![i].st = "over"] /\ UNCHANGED log   \* a fence is there
                ELSE /\ End(r) < MaxLog /\ log' = [log EXCEPT ![r] = Append(@, i)]
                     /\ at' = [at EXCEPT ![i].pos[r] = End(r) + 1]
             /\ UNCHANGED <<owner, mem, after, gen, rec, kept, late>>
Landed(i) == at[i].st = "put" /\ \A r \in at[i].parts : at[i].pos[r] > 0
Into(i) == [r \in Regions |-> mem[r] \cup IF r \in at[i].parts /\ owner[r] = at[i].by THEN {i} ELSE {}]
Record(i) == /\ Landed(i)
             /\ LET n == at[i].n IN
                IF rec[n] = Absent
                THEN rec' = [rec EXCEPT ![n] = Committed(i)] /\ at' = [at EXCEPT ![i].st = "apply"] /\ UNCHANGED mem
                ELSE \* another attempt was first: its rows count, and not ours, which are given up
                     /\ at' = [at EXCEPT ![i].st = IF rec[n].v = "committed" THEN "skipped" ELSE "over"]
                     /\ mem' = (IF rec[n].v = "committed" /\ "applyAnyway" \in Breaks THEN Into(i) ELSE mem)
                     /\ UNCHANGED rec
             /\ UNCHANGED <<log, owner, after, gen, kept, late>>
Apply(i) == /\ at[i].st = "apply" /\ mem' = Into(i) /\ at' = [at EXCEPT ![i].st = "written"]
            /\ UNCHANGED <<log, owner, after, gen, rec, kept, late>>
Stop(S) == owner' = [r \in Regions |-> IF r \in S THEN NoOne ELSE owner[r]]
InDoubt(i) == /\ Landed(i) /\ late = {} /\ late' = {i} /\ at' = [at EXCEPT ![i].st = "over"]
              /\ Stop({r \in at[i].parts : owner[r] = at[i].by})
              /\ UNCHANGED <<log, mem, after, gen, rec, kept>>
LateRecord == /\ late' = {} /\ \E i \in late : rec[at[i].n] = Absent /\ rec' = [rec EXCEPT ![at[i].n] = Committed(i)]
              /\ UNCHANGED <<log, owner, mem, after, gen, kept, at>>
Crash(p) == /\ \E i \in Moving : at[i].by = p
            /\ at' = [i \in Attempts |-> IF i \in Moving /\ at[i].by = p THEN [at[i] EXCEPT !.st = "over"] ELSE at[i]]
            /\ Stop({r \in Regions : owner[r] = p}) /\ UNCHANGED <<log, mem, after, gen, rec, kept, late>>
Flush(r) == /\ owner[r] # NoOne /\ mem[r] # {} /\ {i \in Holders(r) : at[i].pos[r] > 0} = {}
            /\ gen' = [gen EXCEPT ![r] = @ \cup mem[r]] /\ mem' = [mem EXCEPT ![r] = {}]
            /\ after' = [after EXCEPT ![r] = End(r)] /\ UNCHANGED <<log, owner, rec, kept, at, late>>
(* T14. A record outlives every attempt that may still put it; "aborted" outlives its successors. *)
Forget(n) == /\ Moving \cup late = {} \/ "forgetInFlight" \in Breaks
             /\ \/ rec[n].v = "committed" /\ \A r \in Regions : at[rec[n].by].pos[r] <= after[r]
                \/ /\ rec[n].v = "aborted" /\ Moving \cup late = {}
                   /\ IF n = MaxChain \/ "chainCut" \in Breaks THEN TRUE ELSE rec[n + 1] = Absent
             /\ rec' = [rec EXCEPT ![n] = Absent] /\ UNCHANGED <<log, owner, mem, after, gen, kept, at, late>>
(* A reader keeps verdicts of intents, which are final. Mutant: of ids, which are used again. *)
Keep(n) == /\ "keptById" \in Breaks /\ rec[n] # Absent /\ kept[n] = Absent /\ kept' = [kept EXCEPT ![n] = rec[n]]
           /\ UNCHANGED <<log, owner, mem, after, gen, rec, at, late>>
Next == \/ \E i \in Attempts : \/ \E p \in Procs : Look(i, p)
                               \/ Slots(i) \/ Record(i) \/ Apply(i) \/ InDoubt(i) \/ \E r \in Regions : Put(i, r)
        \/ \E p \in Procs : Crash(p) \/ \E r \in Regions : Claim(p, r)
        \/ LateRecord \/ \E r \in Regions : Flush(r) \/ \E n \in Links : Forget(n) \/ Keep(n)
Spec == Init /\ [][Next]_vars
Read(i, r) == LET n == at[i].n IN
              i \in gen[r] \/ (at[i].pos[r] > after[r] /\ CountsBy(IF kept[n] = Absent THEN rec[n] ELSE kept[n], i))
Once == Cardinality({n \in Links : rec[n].v = "committed"}) <= 1
Written == \A i \in Attempts : at[i].st = "written" => \A r \in at[i].parts : Read(i, r)
Whole == \A i \in Attempts : (\E r \in at[i].parts : Read(i, r)) => \A r \in at[i].parts : Read(i, r)
OwnSees == \A r \in Regions : owner[r] # NoOne =>
             /\ mem[r] \subseteq Counted(r)
             /\ Counted(r) \subseteq mem[r] \cup {i \in Attempts : at[i].st = "apply"}
(* Not promised: a record lists each region that has an intent of its id; attempts differ. *)
Listed == \A i \in Attempts, r \in Regions :
            at[i].pos[r] > after[r] /\ rec[at[i].n].v = "committed" => r \in at[rec[at[i].n].by].parts
=============================================================================
