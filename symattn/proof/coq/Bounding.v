(* Inequalities: the difference of both sides is, for all sizes, what is not negative by its form.

   Not negative are numbers, sizes, exponentials, relations, squares, letters that are declared so, sums, products and
   quotients of them, 1 less a relation, and e^u − u − 1. *)
From Coq Require Import Reals List Arith ZArith Lia Lra Bool.
From Symattn Require Import Meaning Cutoff Clearing Accepting.
Import ListNotations.
Open Scope R_scope.

Section Bounding.
Variables (plus least : list nat) (circles : list (nat * nat)).
Fixpoint at_least_0 (e : expr) : bool :=
  match e with
  | Num z => (0 <=? z)%Z
  | Size _ | Exp _ | Is _ _ _ => true
  | Letter k _ => existsb (Nat.eqb k) plus || existsb (Nat.eqb k) least
  | Add a b =>
      if at_least_0 a && at_least_0 b then true else
      match a, b with
      | Exp u, Mul (Num (-1)) (Add v (Num 1)) => if expr_eq u v then true else false
      | Mul (Num (-1)) (Is _ _ _), Num 1 => true
      | _, _ => false
      end
  | Mul a b => if expr_eq a b then true else at_least_0 a && at_least_0 b
  | Div a b => at_least_0 a && positive plus b
  | Sum _ b => at_least_0 b
  | _ => false
  end.

(* [left] is at most [right] in all worlds in which the letters [least] are not negative. *)
Definition at_most (free : list nat) (left right : expr) : Prop :=
  forall size letter function, world plus circles size letter ->
  (forall k, In k least -> forall at_, 0 <= letter k at_) -> forall env, Forall2 (placed size) free env ->
  defined plus size letter function env left -> defined plus size letter function env right ->
  eval size letter function env left <= eval size letter function env right.

Section World.
Variables (size : nat -> nat) (letter : letters) (function : nat -> list R -> R).
Hypothesis W : world plus circles size letter.
Hypothesis L : forall k, In k least -> forall at_, 0 <= letter k at_.
Notation eval := (eval size letter function).

Lemma tangent u : u + 1 <= exp u.
Proof. destruct (Req_dec u 0) as [->|H]; [rewrite exp_0; lra|]. apply exp_ineq1 in H. lra. Qed.
Lemma at_least_0_ok e : forall env, at_least_0 e = true -> 0 <= eval env e.
Proof.
  induction e; intros env H; cbn [at_least_0] in H; try easy.
  - apply Z.leb_le, IZR_le in H. exact H.
  - apply pos_INR.
  - cbn. apply orb_prop in H as [H|H]; apply existsb_exists in H as [x [I E]]; apply Nat.eqb_eq in E; subst; [|now apply L].
    destruct W as [_ [P _]]. left. now apply P.
  - cbn. destruct related; cbn; lra.
  - destruct (at_least_0 e1 && at_least_0 e2) eqn:B.
    { apply andb_prop in B as [B1 B2]. specialize (IHe1 env B1). specialize (IHe2 env B2). cbn. lra. }
    clear B. destruct e1; try easy.
    + destruct e1_1; try easy. destruct z as [| |[]]; try easy. destruct e1_2; try easy. destruct e2; try easy.
      destruct z as [|[]|]; try easy. cbn. destruct related; cbn; lra.
    + destruct e2; try easy. destruct e2_1; try easy. destruct z as [| |[]]; try easy. destruct e2_2; try easy.
      destruct e2_2_2; try easy. destruct z as [|[]|]; try easy. destruct expr_eq; [subst|easy]. cbn.
      pose proof (tangent (eval env e2_2_1)). lra.
  - destruct expr_eq; [subst; cbn; apply Rle_0_sqr|]. apply andb_prop in H as [H1 H2]. cbn. now apply Rmult_le_pos; auto.
  - apply andb_prop in H as [H1 H2]. cbn. apply Rmult_le_pos; [auto|]. left. apply Rinv_0_lt_compat.
    now apply (positive_ok plus circles size letter function W).
  - cbn. left. apply exp_pos.
  - cbn. induction (size s) as [|n IH]; cbn [sum]; [lra|]. specialize (IHe (Some (s, n) :: env) H). lra.
Qed.
End World.

(* [why] is the difference of the sides, and not negative by its form. *)
Definition bounds K passes steps free l r why : bool :=
  if sure plus why then if at_least_0 why then accepts plus circles K passes steps free (Add r (Mul (Num (-1)) l)) why
  else false else false.
Theorem bounds_ok K passes steps free l r why : bounds K passes steps free l r why = true -> at_most free l r.
Proof.
  unfold bounds. destruct (sure plus why) eqn:S; [|easy]. destruct (at_least_0 why) eqn:A; [|easy].
  intros H size letter function W L env P D1 D2. apply accepts_ok in H.
  specialize (H size letter function W env P (conj D2 (conj I D1))).
  assert (D : defined plus size letter function env why) by now apply sure_defined.
  specialize (H D). pose proof (at_least_0_ok size letter function W L why env A). cbn in H. lra.
Qed.

(* An expression that is more than 0 by its form is so in all worlds. *)
Definition above_0 (e : expr) : Prop := forall size letter function, world plus circles size letter ->
  forall env, 0 < eval size letter function env e.
Theorem above_0_ok e : positive plus e = true -> above_0 e.
Proof. intros H size letter function W env. now apply (positive_ok plus circles size letter function W). Qed.
End Bounding.
