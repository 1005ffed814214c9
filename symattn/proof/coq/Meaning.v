(* What an expression of symattn means.

   An expression speaks of an entry of an array whose sizes are letters, such as Σ_k q(i,k) w(k,j). Given the sizes, the
   entries of the arrays ("letters") and the functions of which nothing is known (max, rsqrt), it is a real number: [eval].
   An index is a place, a sort with a number below the size of that sort; free and bound indices are counted from the
   innermost outwards, so that 0 is the nearest Σ. This file has no proofs: it is what a reader has to believe. *)
From Coq Require Import Reals List Arith ZArith.
Import ListNotations.
Open Scope R_scope.

(* f (n - 1) + … + f 0 *)
Fixpoint sum (n : nat) (f : nat -> R) : R := match n with O => 0 | S n => f n + sum n f end.
Definition truth (b : bool) : R := if b then 1 else 0.

Inductive relation := Equal | AtMost | Below.
Definition compares (r : relation) (i j : nat) : bool :=
  match r with Equal => i =? j | AtMost => i <=? j | Below => i <? j end%nat.

Inductive expr :=
| Num (z : Z)
| Size (s : nat) (* the size of a sort *)
| Letter (k : nat) (at_ : list nat) (* an entry of the array number k *)
| Is (r : relation) (i j : nat) (* 1 where the indices compare so, else 0 *)
| Add (a b : expr) | Mul (a b : expr) | Div (a b : expr) | Exp (a : expr)
| Sum (s : nat) (b : expr)
| Fun (f : nat) (l : args) (* a function of which nothing is known, of a list of numbers *)
with args := End | One (a : expr) (l : args) | Over (s : nat) (b : expr) (l : args).

Definition place : Type := option (nat * nat).
Definition look (env : list place) (i : nat) : place := nth i env None.
Definition related (r : relation) (p q : place) : bool :=
  match p, q with Some (s, i), Some (t, j) => (s =? t)%nat && compares r i j | _, _ => false end.

(* More than 0 by its form, as the letters numbered in [plus] are. *)
Fixpoint positive (plus : list nat) (e : expr) : bool :=
  match e with
  | Num z => (0 <? z)%Z
  | Size _ | Exp _ => true
  | Letter k _ => existsb (Nat.eqb k) plus
  | Add a b | Mul a b | Div a b => positive plus a && positive plus b
  | Sum _ b => positive plus b
  | _ => false
  end.

Section Meaning.
Variables (plus : list nat) (size : nat -> nat) (letter : nat -> list place -> R) (function : nat -> list R -> R).

Fixpoint eval (env : list place) (e : expr) : R :=
  match e with
  | Num z => IZR z
  | Size s => INR (size s)
  | Letter k at_ => letter k (map (look env) at_)
  | Is r i j => truth (related r (look env i) (look env j))
  | Add a b => eval env a + eval env b
  | Mul a b => eval env a * eval env b
  | Div a b => eval env a / eval env b
  | Exp a => exp (eval env a)
  | Sum s b => sum (size s) (fun i => eval (Some (s, i) :: env) b)
  | Fun f l => function f (values env l)
  end
with values (env : list place) (l : args) : list R :=
  match l with
  | End => []
  | One a l => eval env a :: values env l
  | Over s b End => map (fun i => eval (Some (s, i) :: env) b) (seq 0 (size s))
  | Over s b l => map (fun i => eval (Some (s, i) :: env) b) (seq 0 (size s)) ++ values env l
  end.

(* Nothing is divided by 0: what is not more than 0 by its form has to be a hypothesis. *)
Fixpoint defined (env : list place) (e : expr) : Prop :=
  match e with
  | Add a b | Mul a b => defined env a /\ defined env b
  | Div a b => defined env a /\ defined env b /\ (if positive plus b then True else eval env b <> 0)
  | Exp a => defined env a
  | Sum s b => forall i, (i < size s)%nat -> defined (Some (s, i) :: env) b
  | Fun _ l => all_defined env l
  | _ => True
  end
with all_defined (env : list place) (l : args) : Prop :=
  match l with
  | End => True
  | One a l => defined env a /\ all_defined env l
  | Over s b l => (forall i, (i < size s)%nat -> defined (Some (s, i) :: env) b) /\ all_defined env l
  end.

Definition placed (s : nat) (p : place) : Prop := exists i, p = Some (s, i) /\ (i < size s)%nat.
End Meaning.

(* The worlds that a statement speaks of: sizes from 1 on, some letters positive, some pairs cosines and sines. *)
Definition world (plus : list nat) (circles : list (nat * nat)) (size : nat -> nat) (letter : nat -> list place -> R) :=
  (forall s, (0 < size s)%nat) /\ (forall k, In k plus -> forall at_, 0 < letter k at_) /\
  (forall c s, In (c, s) circles -> forall at_, letter c at_ * letter c at_ + letter s at_ * letter s at_ = 1).

(* Both sides are equal for all sizes, letters and functions, at all places of the sorts [free]. *)
Definition equal plus circles (free : list nat) (left right : expr) : Prop :=
  forall size letter function, world plus circles size letter -> forall env, Forall2 (placed size) free env ->
  defined plus size letter function env left -> defined plus size letter function env right ->
  eval size letter function env left = eval size letter function env right.
