(* Folds over tiles: where the state of two tiles side by side is what merging their states makes, the state of any number
   of tiles, of any sizes, merged in any bracketing, is the state of all entries at once. By induction over the merges.

   [tile start n x] says that x is the state of the n entries from [start] on; [merge x y z] that z is x and y merged. *)
From Coq Require Import Reals List Arith Lia.
From Symattn Require Import Meaning.
Open Scope R_scope.

Section Folding.
Variable State : Type.
Variables (tile : nat -> nat -> State -> Prop) (merge : State -> State -> State -> Prop).
Inductive folded : nat -> nat -> State -> Prop :=
| of_tile start n x : (0 < n)%nat -> tile start n x -> folded start n x
| of_two start n m x y z :
    folded start n x -> folded (start + n) m y -> merge x y z -> folded start (n + m) z.
Theorem folded_ok :
  (forall start n m x y z, (0 < n)%nat -> (0 < m)%nat -> tile start n x -> tile (start + n) m y -> merge x y z ->
    tile start (n + m) z) ->
  forall start n x, folded start n x -> (0 < n)%nat /\ tile start n x.
Proof.
  intros step start n x F. induction F as [| start n m x y z F1 [P1 T1] F2 [P2 T2] M]; [easy|].
  split; [lia|]. now apply (step _ _ _ x y).
Qed.
End Folding.

Lemma sum_app n m f : sum (n + m) f = sum n f + sum m (fun i => f (n + i)%nat).
Proof.
  induction m; cbn [sum]; [rewrite Nat.add_0_r; ring|]. rewrite Nat.add_succ_r. cbn [sum]. rewrite IHm. ring.
Qed.
