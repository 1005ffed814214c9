(* Inequalities: the difference of both sides is, for all sizes, what is not negative by its form.

   Not negative are numbers, sizes, exponentials, relations, squares, letters that are declared so, sums, products and
   quotients of them, 1 less a relation, e^u − u − 1, and what has a factor that is assumed to be 0. A sum of these of
   which one is more than 0 is more than 0. Functions may be told to be logarithms: e^(log y) is y where y > 0. *)
From Coq Require Import Reals List Arith ZArith Lia Lra Bool.
From Symattn Require Import Meaning Cutoff Clearing Accepting.
Import ListNotations.
Open Scope R_scope.

Section Bounding.
Variables (plus least logs : list nat) (circles : list (nat * nat)).
(* Expressions that are assumed not to be negative, each with the sorts of its indices in the order of [free_in]. *)
Variables (given : list (list nat * expr)).
Definition option_eq := list_eq_dec (fun a b : option nat => ltac:(decide equality; apply Nat.eq_dec) : {a = b} + {a <> b}).
Definition among (every : list (list nat * expr)) (here : list nat) (e : expr) : bool :=
  existsb (fun p => if expr_eq (compact e) (snd p) then
    if option_eq (map Some (fst p)) (map (nth_error here) (free_in e)) then true else false else false) every.
Fixpoint at_least_0 (here : list nat) (e : expr) : bool :=
  if among given here e then true else
  match e with
  | Num z => (0 <=? z)%Z
  | Size _ | Exp _ | Is _ _ _ => true
  | Letter k _ => existsb (Nat.eqb k) plus || existsb (Nat.eqb k) least
  | Add a b =>
      if at_least_0 here a && at_least_0 here b then true else
      match a, b with
      | Exp u, Mul (Num (-1)) (Add v (Num 1)) => if expr_eq u v then true else false
      | Mul (Num (-1)) (Is _ _ _), Num 1 => true
      | _, _ => false
      end
  | Mul a b =>
      if expr_eq a b then true else at_least_0 here a && at_least_0 here b
  | Div a b => at_least_0 here a && positive plus b
  | Sum s b => at_least_0 (s :: here) b
  | _ => false
  end.

Fixpoint more_than_0 (here : list nat) (e : expr) : bool :=
  if positive plus e then true else
  match e with
  | Add a b =>
      if more_than_0 here a then at_least_0 here b else if more_than_0 here b then at_least_0 here a else false
  | Mul a b => more_than_0 here a && more_than_0 here b
  | Div a b => more_than_0 here a && positive plus b
  | Sum s b => more_than_0 (s :: here) b
  | _ => false
  end.

(* What is 0 where an expression is, at all places of the sorts that its sums bring, the innermost first: parts that are
   not negative by their form and add up to 0, the u of e^u − u − 1, and factors beside what is more than 0. *)
Fixpoint forced (here : list nat) (e : expr) : list (list nat * expr) :=
  ([], e) ::
  match e with
  | Add a b =>
      if at_least_0 here a && at_least_0 here b then forced here a ++ forced here b else
      match a, b with Exp u, Mul (Num (-1)) (Add v (Num 1)) => if expr_eq u v then [([], u)] else [] | _, _ => [] end
  | Mul a b =>
      if expr_eq a b then forced here a else
      if positive plus a then forced here b else if positive plus b then forced here a else []
  | Div a b => if positive plus b then forced here a else []
  | Sum s b => if at_least_0 (s :: here) b then map (fun p => (fst p ++ [s], snd p)) (forced (s :: here) b) else []
  | _ => []
  end.

(* e^a where a may hold logarithms, and an expression with all its e^a written so. *)
Definition is_log f y := existsb (Nat.eqb f) logs && positive plus y.
Fixpoint power_of (a : expr) : expr :=
  match a with
  | Add u v => Mul (power_of u) (power_of v)
  | Fun f (One y End) => if is_log f y then y else Exp a
  | Mul (Num (-1)) (Fun f (One y End)) => if is_log f y then Div (Num 1) y else Exp a
  | a => Exp a
  end.
Fixpoint unlogged (e : expr) : expr :=
  match e with
  | Add a b => Add (unlogged a) (unlogged b)
  | Mul a b => Mul (unlogged a) (unlogged b)
  | Div a b => Div (unlogged a) b
  | Sum s b => Sum s (unlogged b)
  | Exp a => power_of a
  | e => e
  end.

(* What holds in all worlds in which the letters [least] and what is [given] are not negative, and the functions [logs]
   are logarithms: that [left] is at most [right], or if [strict] less; and that where they are equal [x] is 0 at all
   places of the sorts [more]. *)
Definition relates (strict : bool) (x y : R) : Prop := if strict then x < y else x <= y.
Definition in_worlds (free : list nat) (left right : expr)
    (what : (nat -> nat) -> letters -> (nat -> list R -> R) -> list place -> Prop) : Prop :=
  forall size letter function, world plus circles size letter ->
  (forall k, In k least -> forall at_, 0 <= letter k at_) ->
  (forall p, In p given -> forall env, Forall2 (placed size) (fst p) env -> 0 <= eval size letter function env (snd p)) ->
  (forall f, In f logs -> forall x, 0 < x -> exp (function f [x]) = x) ->
  forall env, Forall2 (placed size) free env ->
  defined plus size letter function env left -> defined plus size letter function env right ->
  what size letter function env.
Definition at_most (strict : bool) (free : list nat) (left right : expr) : Prop :=
  in_worlds free left right (fun size letter function env =>
    relates strict (eval size letter function env left) (eval size letter function env right)).
Definition only_where (free more : list nat) (left right x : expr) : Prop :=
  in_worlds free left right (fun size letter function env =>
    eval size letter function env left = eval size letter function env right ->
    forall places, Forall2 (placed size) more places -> eval size letter function (places ++ env) x = 0).

Section World.
Variables (size : nat -> nat) (letter : letters) (function : nat -> list R -> R).
Hypothesis W : world plus circles size letter.
Hypothesis L : forall k, In k least -> forall at_, 0 <= letter k at_.
Hypothesis A : forall p, In p given -> forall env, Forall2 (placed size) (fst p) env ->
  0 <= eval size letter function env (snd p).
Hypothesis G : forall f, In f logs -> forall x, 0 < x -> exp (function f [x]) = x.
Notation eval := (eval size letter function).

Lemma placed_look here env x s : Forall2 (placed size) here env -> nth_error here x = Some s -> placed size s (look env x).
Proof.
  intro P. revert x. induction P as [|? ? ? ? ? ? IH]; intros [|n]; cbn; try easy; [intros [= <-]; easy|]. apply IH.
Qed.
Lemma among_ok (P : R -> Prop) every here env e :
  (forall p, In p every -> forall env, Forall2 (placed size) (fst p) env -> P (eval env (snd p))) ->
  among every here e = true -> Forall2 (placed size) here env -> P (eval env e).
Proof.
  intros T H Q. apply existsb_exists in H as [[sorts g] [I H]]. cbn [fst snd] in H.
  destruct expr_eq as [E|]; [|easy]. destruct option_eq as [F|]; [|easy].
  rewrite compact_ok, E. apply (T _ I). cbn [fst]. clear -Q F. revert sorts F.
  induction (free_in e) as [|x l IH]; intros [|s sorts] F; try easy; cbn in *; constructor.
  - apply (placed_look here env x s Q). congruence.
  - apply IH. congruence.
Qed.
Lemma tangent u : u + 1 <= exp u.
Proof. destruct (Req_dec u 0) as [->|H]; [rewrite exp_0; lra|]. apply exp_ineq1 in H. lra. Qed.
Lemma at_least_0_ok e : forall here env, at_least_0 here e = true -> Forall2 (placed size) here env -> 0 <= eval env e.
Proof.
  induction e; intros here env H P; cbn [at_least_0] in H; (destruct among eqn:Q; [now apply (among_ok (Rle 0) given here env)|clear Q]);
    try easy.
  - apply Z.leb_le, IZR_le in H. exact H.
  - apply pos_INR.
  - cbn. apply orb_prop in H as [H|H]; apply existsb_exists in H as [x [I E]]; apply Nat.eqb_eq in E; subst; [|now apply L].
    destruct W as [_ [B _]]. left. now apply B.
  - cbn. destruct related; cbn; lra.
  - destruct (at_least_0 here e1 && at_least_0 here e2) eqn:B.
    { apply andb_prop in B as [B1 B2]. specialize (IHe1 here env B1 P). specialize (IHe2 here env B2 P). cbn. lra. }
    clear B. destruct e1; try easy.
    + destruct e1_1; try easy. destruct z as [| |[]]; try easy. destruct e1_2; try easy. destruct e2; try easy.
      destruct z as [|[]|]; try easy. cbn. destruct related; cbn; lra.
    + destruct e2; try easy. destruct e2_1; try easy. destruct z as [| |[]]; try easy. destruct e2_2; try easy.
      destruct e2_2_2; try easy. destruct z as [|[]|]; try easy. destruct expr_eq; [subst|easy]. cbn.
      pose proof (tangent (eval env e2_2_1)). lra.
  - destruct expr_eq; [subst; cbn; apply Rle_0_sqr|].
    apply andb_prop in H as [H1 H2]. cbn. apply Rmult_le_pos; eauto.
  - apply andb_prop in H as [H1 H2]. cbn. apply Rmult_le_pos; [eauto|]. left. apply Rinv_0_lt_compat.
    now apply (positive_ok plus circles size letter function W).
  - cbn. left. apply exp_pos.
  - cbn. assert (S : forall i, (i < size s)%nat -> 0 <= eval (Some (s, i) :: env) e).
    { intros i I. apply (IHe (s :: here)); [easy|]. constructor; [now exists i | easy]. }
    revert S. induction (size s) as [|n IH]; cbn [sum]; intro S; [lra|].
    assert (0 <= sum n (fun i => eval (Some (s, i) :: env) e)) by (apply IH; intros; apply S; lia).
    specialize (S n ltac:(lia)). lra.
Qed.
Lemma more_than_0_ok e : forall here env, more_than_0 here e = true -> Forall2 (placed size) here env -> 0 < eval env e.
Proof.
  induction e; intros here env H P; cbn [more_than_0] in H;
    (destruct (positive plus _) eqn:Q in H; [now apply (positive_ok plus circles size letter function W)|clear Q]); try easy.
  - destruct (more_than_0 here e1) eqn:M.
    { specialize (IHe1 here env M P). pose proof (at_least_0_ok e2 here env H P). cbn. lra. }
    destruct (more_than_0 here e2) eqn:N; [|easy].
    specialize (IHe2 here env N P). pose proof (at_least_0_ok e1 here env H P). cbn. lra.
  - apply andb_prop in H as [H1 H2]. cbn. apply Rmult_lt_0_compat; eauto.
  - apply andb_prop in H as [H1 H2]. cbn. apply Rdiv_lt_0_compat; [eauto|].
    now apply (positive_ok plus circles size letter function W).
  - cbn. assert (S : forall i, (i < size s)%nat -> 0 < eval (Some (s, i) :: env) e).
    { intros i I. apply (IHe (s :: here)); [easy|]. constructor; [now exists i | easy]. }
    destruct W as [P0 _]. specialize (P0 s). revert S. induction (size s) as [|[|n] IH]; cbn [sum]; intro S; [lia| |].
    + specialize (S O ltac:(lia)). lra.
    + assert (0 < sum (Datatypes.S n) (fun i => eval (Some (s, i) :: env) e)) by (apply IH; [lia|]; intros; apply S; lia).
      specialize (S (Datatypes.S n) ltac:(lia)). cbn [sum] in *. lra.
Qed.

Lemma sum_is_0 n f : (forall i, (i < n)%nat -> 0 <= f i) -> sum n f = 0 -> forall i, (i < n)%nat -> f i = 0.
Proof.
  induction n as [|n IH]; cbn [sum]; intros P Z0 i I; [lia|].
  assert (0 <= sum n f) by (clear -P; induction n; cbn [sum]; [lra|]; pose proof (P n ltac:(lia)); enough (0 <= sum n f) by lra;
    apply IHn; intros; apply P; lia).
  pose proof (P n ltac:(lia)). assert (H1 : sum n f = 0) by lra.
  destruct (Nat.eq_dec i n) as [->|N]; [lra|]. apply IH; [intros; apply P; lia|easy|lia].
Qed.
Lemma tangent_is_0 u : exp u - (u + 1) = 0 -> u = 0.
Proof. intro H. destruct (Req_dec u 0) as [|N]; [easy|]. apply exp_ineq1 in N. lra. Qed.
Lemma forced_ok e : forall here env, Forall2 (placed size) here env -> eval env e = 0 -> forall p, In p (forced here e) ->
  forall places, Forall2 (placed size) (fst p) places -> eval (places ++ env) (snd p) = 0.
Proof.
  induction e; intros here env P E p H; (destruct H as [<-|H]; [intros places Q; now inversion Q|]); try easy; cbn in E.
  - destruct (at_least_0 here e1 && at_least_0 here e2) eqn:B.
    + apply andb_prop in B as [B1 B2]. pose proof (at_least_0_ok e1 here env B1 P). pose proof (at_least_0_ok e2 here env B2 P).
      apply in_app_or in H as [H|H]; [apply (IHe1 here env) | apply (IHe2 here env)]; easy || lra.
    + destruct e1; try easy. destruct e2; try easy. destruct e2_1; try easy. destruct z as [| |[]]; try easy.
      destruct e2_2; try easy. destruct e2_2_2; try easy. destruct z as [|[]|]; try easy. destruct expr_eq; [subst|easy].
      destruct H as [<-|[]]. intros places Q. inversion Q. cbn in *. apply tangent_is_0. lra.
  - destruct expr_eq; [subst; apply (IHe2 here env); [easy|now destruct (Rmult_integral _ _ E)|easy]|].
    destruct (positive plus e1) eqn:P1; [|destruct (positive plus e2) eqn:P2; [|easy]];
      [apply (positive_ok plus circles size letter function W e1 env) in P1
      |apply (positive_ok plus circles size letter function W e2 env) in P2];
      (destruct (Rmult_integral _ _ E) as [E'|E']; [|]); try lra; [apply (IHe2 here env)|apply (IHe1 here env)]; easy.
  - destruct (positive plus e2) eqn:P2; [|easy]. apply (positive_ok plus circles size letter function W e2 env) in P2.
    apply (IHe1 here env); [easy| |easy]. apply (Rmult_eq_reg_r (/ eval env e2)); [|apply Rgt_not_eq; now apply Rinv_0_lt_compat].
    rewrite Rmult_0_l. exact E.
  - destruct (at_least_0 (s :: here) e) eqn:B; [|easy]. apply in_map_iff in H as [[more x] [<- H]]. cbn [fst snd].
    intros places Q. apply Forall2_app_inv_l in Q as [l1 [l2 [Q1 [Q2 ->]]]]. inversion Q2 as [|? ? ? ? R1 R2]; subst.
    inversion R2; subst. destruct R1 as [i [-> I]]. rewrite <- app_assoc. cbn [app].
    assert (F : forall i, (i < size s)%nat -> Forall2 (placed size) (s :: here) (Some (s, i) :: env))
      by (intros; constructor; [now eexists|easy]).
    apply (IHe (s :: here) (Some (s, i) :: env) (F i I)) with (p := (more, x)); [|easy|easy].
    apply (sum_is_0 (size s) (fun i => eval (Some (s, i) :: env) e)); [|exact E|easy].
    intros j J. apply (at_least_0_ok e (s :: here)); auto.
Qed.

Lemma is_log_ok env f y : is_log f y = true -> exp (function f [eval env y]) = eval env y.
Proof.
  intro H. apply andb_prop in H as [H1 H2]. apply existsb_exists in H1 as [x [I E]]. apply Nat.eqb_eq in E; subst.
  apply G; [easy|]. now apply (positive_ok plus circles size letter function W).
Qed.
Lemma power_of_ok a env : eval env (power_of a) = exp (eval env a).
Proof.
  induction a; try easy.
  - cbn. now rewrite IHa1, IHa2, exp_plus.
  - cbn [power_of]. destruct a1; try easy. destruct z as [| |[]]; try easy. destruct a2; try easy.
    destruct l as [|y [| |]|]; try easy. destruct is_log eqn:E; [|easy]. apply (is_log_ok env) in E.
    change (1 / eval env y = exp (-1 * function f [eval env y])).
    replace (-1 * function f [eval env y]) with (- function f [eval env y]) by ring.
    rewrite exp_Ropp, E. unfold Rdiv. ring.
  - cbn [power_of]. destruct l as [|y [| |]|]; try easy. destruct is_log eqn:E; [|easy]. symmetry. now apply is_log_ok.
Qed.
Lemma unlogged_ok e : forall env, eval env (unlogged e) = eval env e.
Proof.
  induction e; intro env; cbn; try easy; rewrite ?IHe1, ?IHe2; try easy.
  - apply power_of_ok.
  - apply sum_ext. auto.
Qed.
End World.

(* [why] is the difference of the sides, and not negative, or more than 0, by its form. *)
Definition bounds (strict : bool) K passes steps free l r why : bool :=
  if sure plus (unlogged why) then
    if (if strict then more_than_0 free why else at_least_0 free why)
    then accepts plus circles K passes steps free (Add r (Mul (Num (-1)) l)) (unlogged why)
  else false else false.
Theorem bounds_ok strict K passes steps free l r why :
  bounds strict K passes steps free l r why = true -> at_most strict free l r.
Proof.
  unfold bounds. destruct (sure plus (unlogged why)) eqn:S; [|easy]. destruct (if strict then _ else _) eqn:A; [|easy].
  intros H size letter function W L G F env P D1 D2. apply accepts_ok in H.
  specialize (H size letter function W env P (conj D2 (conj I D1))).
  assert (D : defined plus size letter function env (unlogged why)) by now apply sure_defined.
  specialize (H D). rewrite (unlogged_ok size letter function W F) in H. cbn in H. destruct strict; cbn.
  - pose proof (more_than_0_ok size letter function W L G why free env A P). lra.
  - pose proof (at_least_0_ok size letter function W L G why free env A P). lra.
Qed.

(* Where both sides are equal, so that [why] is 0, [x] is 0 at all places of the sorts [more]. *)
Definition forces K passes steps free more l r why x : bool :=
  if sure plus (unlogged why) then
    if existsb (fun p => if list_eq (fst p) more then if expr_eq (snd p) x then true else false else false) (forced free why)
    then accepts plus circles K passes steps free (Add r (Mul (Num (-1)) l)) (unlogged why)
  else false else false.
Theorem forces_ok K passes steps free more l r why x :
  forces K passes steps free more l r why x = true -> only_where free more l r x.
Proof.
  unfold forces. destruct (sure plus (unlogged why)) eqn:S; [|easy]. destruct existsb eqn:A; [|easy].
  intros H size letter function W L G F env P D1 D2 E. apply accepts_ok in H.
  specialize (H size letter function W env P (conj D2 (conj I D1))).
  assert (D : defined plus size letter function env (unlogged why)) by now apply sure_defined.
  specialize (H D). rewrite (unlogged_ok size letter function W F) in H. cbn in H.
  apply existsb_exists in A as [[m y] [J B]]. cbn [fst snd] in B. destruct list_eq; [|easy]. destruct expr_eq; [subst|easy].
  assert (E0 : eval size letter function env why = 0) by lra.
  exact (forced_ok size letter function W L G why free env P E0 (more, x) J).
Qed.
End Bounding.
