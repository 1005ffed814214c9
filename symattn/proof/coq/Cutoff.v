(* The cut-off theorem: an expression without quotients, exponentials and functions is 0 at all sizes if it is 0 at the
   small ones, those up to the number of its indices of each sort.

   As a function of the set of indices that a sort has, such an expression has finite differences: adding an index
   changes it by an expression with one sum less. What has at most d differences and is 0 on all sets of at most d
   elements is 0 on all sets ([vanishing]). Letters may obey laws that speak of one place at a time ([lawful]). Free
   indices go away by a sum with fresh weights: Σ_i w_i N_i is 0 for all w if and only if every N_i is. *)
From Coq Require Import Reals List Arith ZArith Lia Lra Bool.
From Symattn Require Import Meaning.
Import ListNotations.
Open Scope R_scope.
Local Arguments Nat.ltb : simpl never.
Local Arguments Nat.leb : simpl never.
Local Arguments Nat.eqb : simpl never.

(* 1. Sums over lists, and expressions whose sorts are lists of indices. *)
Fixpoint over (l : list nat) (f : nat -> R) : R := match l with [] => 0 | i :: l => f i + over l f end.
Lemma over_ext l f g : (forall i, In i l -> f i = g i) -> over l f = over l g.
Proof. induction l; cbn; intro H; [easy|]. rewrite H, IHl; auto. Qed.
Lemma over_map h l f : over (map h l) f = over l (fun i => f (h i)).
Proof. induction l; cbn; congruence. Qed.
Lemma over_minus l f g : over l (fun i => f i - g i) = over l f - over l g.
Proof. induction l; cbn; [ring|]. rewrite IHl. ring. Qed.
Lemma over_zero l f : (forall i, In i l -> f i = 0) -> over l f = 0.
Proof. intro H. rewrite (over_ext l f (fun _ => 0)) by easy. clear. induction l; cbn; lra. Qed.

Definition letters := nat -> list place -> R.
Fixpoint peval (sets : nat -> list nat) (J : letters) (env : list place) (e : expr) : R :=
  match e with
  | Num z => IZR z
  | Size s => INR (length (sets s))
  | Letter k at_ => J k (map (look env) at_)
  | Is r i j => truth (related r (look env i) (look env j))
  | Add a b => peval sets J env a + peval sets J env b
  | Mul a b => peval sets J env a * peval sets J env b
  | Sum s b => over (sets s) (fun i => peval sets J (Some (s, i) :: env) b)
  | _ => 0
  end.

Fixpoint deg (s : nat) (e : expr) : nat :=
  match e with
  | Size t => if t =? s then 1 else 0
  | Add a b => max (deg s a) (deg s b)
  | Mul a b => deg s a + deg s b
  | Sum t b => (if t =? s then 1 else 0) + deg s b
  | _ => 0
  end%nat.

(* 2. Functions of lists with at most d differences. *)
Fixpoint differs (d : nat) (F : list nat -> R) : Prop :=
  match d with
  | O => forall v L, F (v :: L) = F L
  | S d => forall v, differs d (fun L => F (v :: L) - F L)
  end.
Lemma differs_ext d : forall F G, (forall L, F L = G L) -> differs d F -> differs d G.
Proof.
  induction d; cbn; intros F G E H; [intros; rewrite <- !E; auto|].
  intro v. eapply IHd; [|apply (H v)]. intro L; cbn. now rewrite !E.
Qed.
Lemma differs_more d e F : (d <= e)%nat -> differs d F -> differs e F.
Proof.
  assert (one : forall d F, differs d F -> differs (S d) F); [|induction 1; auto].
  clear. induction d; intros F H.
  - intros v w L. cbn in H. rewrite !H. ring.
  - intro v. apply IHd, H.
Qed.
Lemma differs_add d : forall F G, differs d F -> differs d G -> differs d (fun L => F L + G L).
Proof.
  induction d; cbn; intros F G HF HG; [intros; now rewrite HF, HG|].
  intro v. eapply differs_ext; [|apply (IHd _ _ (HF v) (HG v))]. intro L; cbn; ring.
Qed.
Lemma differs_next d F v : differs d F -> differs d (fun L => F (v :: L)).
Proof.
  destruct d; intro H; [cbn in *; intros; now rewrite !H|].
  apply differs_ext with (F := fun L => (F (v :: L) - F L) + F L); [intro; ring|].
  apply differs_add; [|exact H]. apply differs_more with d; [lia|]. apply H.
Qed.
Lemma differs_mul a : forall b F G, differs a F -> differs b G -> differs (a + b) (fun L => F L * G L).
Proof.
  induction a; induction b; intros F G HF HG.
  - cbn in *. intros. now rewrite HF, HG.
  - intro v. eapply differs_ext; [|apply (IHb F _ HF (HG v))]. intro L; cbn. cbn in HF. rewrite (HF v L). ring.
  - intro v. eapply differs_ext; [|apply (IHa 0%nat _ G (HF v) HG)]. intro L; cbn. cbn in HG. rewrite (HG v L). ring.
  - intro v. change (differs (a + S b) (fun L => F (v :: L) * G (v :: L) - F L * G L)).
    apply differs_ext with (F := fun L => (F (v :: L) - F L) * G (v :: L) + F L * (G (v :: L) - G L)); [intro; ring|].
    apply differs_add.
    + apply IHa; [apply HF | now apply differs_next].
    + replace (a + S b)%nat with (S a + b)%nat by lia. apply IHb; [exact HF | apply HG].
Qed.
Lemma differs_over d (f : nat -> list nat -> R) l : (forall i, differs d (f i)) -> differs d (fun L => over l (fun i => f i L)).
Proof.
  intro H. induction l; cbn; [|now apply differs_add].
  apply differs_more with 0%nat; [lia | easy].
Qed.
Lemma differs_sum d : forall f : nat -> list nat -> R, (forall i, differs d (f i)) -> differs (S d) (fun L => over L (fun i => f i L)).
Proof.
  induction d; intros f H v.
  - apply differs_ext with (F := fun L => f v (v :: L)); [|now apply differs_next].
    intro L; cbn. rewrite (over_ext L (fun i => f i (v :: L)) (fun i => f i L)); [ring|]. intros i _. apply H.
  - apply differs_ext with (F := fun L => f v (v :: L) + over L (fun i => f i (v :: L) - f i L)).
    + intro L; cbn. rewrite (over_minus L (fun i => f i (v :: L)) (fun i => f i L)). ring.
    + apply differs_add; [now apply differs_next|]. apply (IHd (fun i L => f i (v :: L) - f i L)). intro i; apply H.
Qed.

(* Sets are lists that fall strictly, from below m. *)
Fixpoint falls (m : nat) (L : list nat) : Prop := match L with [] => True | v :: L => (v < m)%nat /\ falls v L end.
Definition is_set L := exists m, falls m L.
Lemma falls_more L m m' : (m <= m')%nat -> falls m L -> falls m' L.
Proof. destruct L; cbn; intuition lia. Qed.
Lemma falls_in L : forall m i, falls m L -> In i L -> (i < m)%nat.
Proof. induction L; cbn; [easy|]. intros m i [H D] [<-|I]; [easy|]. specialize (IHL _ _ D I). lia. Qed.

Lemma vanishing d : forall F m, differs d F ->
  (forall L, falls m L -> (length L <= d)%nat -> F L = 0) -> forall L, falls m L -> F L = 0.
Proof.
  induction d; intros F m H Z; induction L as [|v L IH]; intro D; try (apply Z; cbn; auto; lia); destruct D as [D1 D2];
    assert (D3 : falls m L) by (eapply falls_more; [|exact D2]; lia).
  - cbn in H. rewrite H. auto.
  - assert (E : F (v :: L) - F L = 0).
    { refine (IHd (fun L => F (v :: L) - F L) v (H v) _ L D2). intros L' D' few.
      rewrite !Z; [ring| | | |]; cbn; auto; try lia. eapply falls_more; [|exact D']; lia. }
    rewrite (IH D3) in E. lra.
Qed.

Definition upd (sets : nat -> list nat) s L : nat -> list nat := fun t => if (t =? s)%nat then L else sets t.
Lemma peval_ext S T J e : (forall t, S t = T t) -> forall env, peval S J env e = peval T J env e.
Proof.
  intro H. induction e; cbn; intro env; rewrite ?H; auto; try (rewrite IHe1, IHe2; auto).
  apply over_ext; intros; auto.
Qed.
Theorem peval_differs S J s e : forall env, differs (deg s e) (fun L => peval (upd S s L) J env e).
Proof.
  induction e; intro env; cbn [deg peval]; try (cbn; reflexivity).
  - unfold upd. rewrite Nat.eqb_sym. destruct (s =? s0)%nat; [|now cbn].
    intros v w L. cbn [length]. rewrite !S_INR. ring.
  - apply differs_add; (eapply differs_more; [|eauto]); lia.
  - now apply differs_mul.
  - unfold upd at 1. rewrite Nat.eqb_sym. destruct (Nat.eqb_spec s s0).
    + subst. apply (differs_sum _ (fun i L => peval (upd S s0 L) J (Some (s0, i) :: env) e)). auto.
    + apply (differs_over _ (fun i L => peval (upd S s L) J (Some (s0, i) :: env) e)). auto.
Qed.

(* One sort after the other becomes small. *)
Lemma by_sorts J env e : forall k S, (forall t, is_set (S t)) ->
  (forall T, (forall t, is_set (T t)) -> (forall t, (t < k)%nat -> (length (T t) <= deg t e)%nat) ->
     (forall t, (k <= t)%nat -> T t = S t) -> peval T J env e = 0) -> peval S J env e = 0.
Proof.
  induction k; intros S D H; [apply H; auto; lia|].
  apply IHk; [exact D|]. intros T D' few same.
  rewrite (peval_ext T (upd T k (T k))) by (intro t; unfold upd; destruct (Nat.eqb_spec t k); congruence).
  destruct (D' k) as [m Dm].
  refine (vanishing _ (fun L => peval (upd T k L) J env e) m (peval_differs T J k e env) _ (T k) Dm).
  intros L DL fewL. apply H; intro t; unfold upd; destruct (Nat.eqb_spec t k); subst; auto; try lia.
  - now exists m.
  - intro; apply few; lia.
  - intro; apply same; lia.
Qed.

(* 3. Sets are renamed in order to n - 1, …, 0. *)
Fixpoint upto n : list nat := match n with O => [] | S n => n :: upto n end.
Lemma upto_in n i : In i (upto n) <-> (i < n)%nat.
Proof. induction n; cbn; [lia|]. rewrite IHn. lia. Qed.
Lemma upto_length n : length (upto n) = n. Proof. induction n; cbn; congruence. Qed.
Lemma upto_set n : is_set (upto n). Proof. exists n. induction n; cbn; auto. Qed.
Lemma sum_over n f : sum n f = over (upto n) f. Proof. induction n; cbn; congruence. Qed.

Fixpoint nth_up (L : list nat) (i : nat) : nat :=
  match L with [] => i | v :: L => if (i <? length L)%nat then nth_up L i else (v + (i - length L))%nat end.
Lemma nth_up_below L : forall m i, falls m L -> (i < length L)%nat -> (nth_up L i < m)%nat.
Proof.
  induction L; cbn; intros m i D lt; [lia|]. destruct D as [D1 D2]. destruct (Nat.ltb_spec i (length L)); [|lia].
  specialize (IHL _ _ D2 H). lia.
Qed.
Lemma nth_up_grows L : forall m i j, falls m L -> (i < j)%nat -> (nth_up L i < nth_up L j)%nat.
Proof.
  induction L; cbn; intros m i j D lt; [lia|]. destruct D as [D1 D2].
  destruct (Nat.ltb_spec i (length L)), (Nat.ltb_spec j (length L)); try lia; [eauto|].
  pose proof (nth_up_below L _ i D2 H). lia.
Qed.
Lemma nth_up_upto L : map (nth_up L) (upto (length L)) = L.
Proof.
  induction L; cbn; [easy|]. rewrite Nat.ltb_irrefl. f_equal; [lia|].
  rewrite <- IHL at 2. apply map_ext_in. intros i I. apply upto_in, Nat.ltb_lt in I. now rewrite I.
Qed.

Definition move (h : nat -> nat -> nat) (p : place) : place :=
  match p with Some (s, i) => Some (s, h s i) | None => None end.
Lemma look_move h env x : look (map (move h) env) x = move h (look env x).
Proof. unfold look. change None with (move h None) at 1. apply map_nth. Qed.
Definition moved h (J : letters) : letters := fun k at_ => J k (map (move h) at_).

Lemma related_move h r p q : (forall t i j, (i < j)%nat -> (h t i < h t j)%nat) -> related r (move h p) (move h q) = related r p q.
Proof.
  intro M. destruct p as [[s i]|], q as [[t j]|]; cbn; auto. destruct (Nat.eqb_spec s t); cbn; auto. subst.
  assert (C : (i < j \/ i = j \/ j < i)%nat) by lia.
  destruct C as [C|[->|C]]; try apply (M t) in C as C'; destruct r; cbn;
    repeat match goal with |- context [Nat.eqb ?a ?b] => destruct (Nat.eqb_spec a b)
      | |- context [Nat.leb ?a ?b] => destruct (Nat.leb_spec a b)
      | |- context [Nat.ltb ?a ?b] => destruct (Nat.ltb_spec a b) end; lia || auto.
Qed.
Lemma relabel h S J e : (forall t i j, (i < j)%nat -> (h t i < h t j)%nat) -> forall env,
  peval (fun t => map (h t) (S t)) J (map (move h) env) e = peval S (moved h J) env e.
Proof.
  intro M. induction e; intro env; cbn; rewrite ?IHe1, ?IHe2; auto.
  - now rewrite map_length.
  - unfold moved. f_equal. rewrite map_map. apply map_ext; intro; apply look_move.
  - now rewrite !look_move, related_move.
  - rewrite over_map. apply over_ext. intros i _. now rewrite <- IHe.
Qed.

(* 4. The theorem. K bounds the sorts that occur. *)
Fixpoint sorts_below K (e : expr) : bool :=
  match e with
  | Size s => s <? K
  | Sum s b => (s <? K) && sorts_below K b
  | Add a b | Mul a b => sorts_below K a && sorts_below K b
  | _ => true
  end%nat.
Lemma peval_below K S T J e : (forall t, (t < K)%nat -> S t = T t) -> sorts_below K e = true -> forall env,
  peval S J env e = peval T J env e.
Proof.
  intro H. induction e; cbn; intros B env; auto; rewrite ?andb_true_iff, ?Nat.ltb_lt in B;
    try (destruct B; rewrite IHe1, IHe2; auto; fail); try (now rewrite H).
  destruct B. rewrite H by auto. apply over_ext; intros; auto.
Qed.

Section Cutoff.
Variable lawful : letters -> Prop.
Hypothesis lawful_moved : forall h J, lawful J -> lawful (moved h J).

Theorem cutoff K e : sorts_below K e = true ->
  (forall n : nat -> nat, (forall t, (n t <= deg t e)%nat) -> forall J, lawful J -> peval (fun t => upto (n t)) J [] e = 0) ->
  forall S, (forall t, is_set (S t)) -> forall J, lawful J -> peval S J [] e = 0.
Proof.
  intros B H S D J L. apply (by_sorts J [] e K S D). intros T D' few _.
  pose (U := fun t => if (t <? K)%nat then T t else []).
  assert (DU : forall t, is_set (U t)) by (intro t; unfold U; destruct (t <? K)%nat; [auto | now exists 0%nat]).
  rewrite (peval_below K T U) by (auto; intros t lt; unfold U; apply Nat.ltb_lt in lt; now rewrite lt).
  rewrite (peval_ext U (fun t => map (nth_up (U t)) (upto (length (U t))))) by (intro; now rewrite nth_up_upto).
  change (@nil place) with (map (move (fun t => nth_up (U t))) []).
  rewrite (relabel (fun t => nth_up (U t)) (fun t => upto (length (U t)))).
  - apply H; [|now apply lawful_moved]. intro t. unfold U. destruct (Nat.ltb_spec t K); cbn; [auto | lia].
  - intros t i j lt. destruct (DU t) as [m Dm]. eapply nth_up_grows; eauto.
Qed.
End Cutoff.

(* 5. Free indices. *)
Fixpoint fresh w (e : expr) : bool :=
  match e with
  | Letter k _ => negb (k =? w)%nat
  | Add a b | Mul a b => fresh w a && fresh w b
  | Sum _ b => fresh w b
  | _ => true
  end.
Lemma peval_fresh w S J J' e : (forall k a, k <> w -> J k a = J' k a) -> forall env, fresh w e = true ->
  peval S J env e = peval S J' env e.
Proof.
  intro H. induction e; cbn; intros env F; auto; try (apply andb_prop in F as [F1 F2]; rewrite IHe1, IHe2; auto; fail).
  - apply H. now apply negb_true_iff, Nat.eqb_neq in F.
  - apply over_ext; intros; auto.
Qed.
Definition weigh w s e := Sum s (Mul (Letter w [O]) e).
Fixpoint closed w (free : list nat) e : expr := match free with [] => e | s :: free => closed (S w) free (weigh w s e) end.
Fixpoint all_fresh w (free : list nat) e : bool :=
  match free with [] => true | s :: free => fresh w e && all_fresh (S w) free (weigh w s e) end.

Section Free.
Variables (lawful : letters -> Prop) (first : nat).
Hypothesis lawful_weights : forall J J' : letters, (forall k a, (k < first)%nat -> J k a = J' k a) -> lawful J -> lawful J'.

Lemma weigh_ok w S s e env : (first <= w)%nat -> fresh w e = true -> is_set (S s) ->
  (forall J, lawful J -> peval S J env (weigh w s e) = 0) ->
  forall J i, lawful J -> In i (S s) -> peval S J (Some (s, i) :: env) e = 0.
Proof.
  intros le F [m Dm] H J i L I.
  pose (J' := fun k a => if (k =? w)%nat then match a with [Some (_, j)] => truth (j =? i)%nat | _ => 0 end else J k a).
  assert (L' : lawful J') by (apply (lawful_weights J); auto; intros k a lt; unfold J'; destruct (Nat.eqb_spec k w); [lia|easy]).
  specialize (H J' L'). cbn in H. unfold J' at 1 in H. rewrite Nat.eqb_refl in H. unfold look in H; cbn in H.
  rewrite (peval_fresh w S J J') by (auto; intros k a ne; unfold J'; destruct (Nat.eqb_spec k w); easy).
  revert m Dm H I. induction (S s) as [|v l IH]; cbn; intros m Dm H I; [easy|].
  destruct Dm as [_ Dv]. destruct I as [->|I].
  - rewrite Nat.eqb_refl in H. cbn [truth] in H.
    rewrite (over_zero l (fun j => truth (j =? i)%nat * peval S J' (Some (s, j) :: env) e)) in H; [lra|].
    intros k Ik. apply (falls_in _ _ _ Dv) in Ik. destruct (Nat.eqb_spec k i); [lia|]. cbn; ring.
  - pose proof (falls_in _ _ _ Dv I). destruct (Nat.eqb_spec v i); [lia|]. cbn in H. apply (IH v Dv); [lra | exact I].
Qed.
Lemma closed_ok S free : (forall t, is_set (S t)) -> forall w e, (first <= w)%nat -> all_fresh w free e = true ->
  (forall J, lawful J -> peval S J [] (closed w free e) = 0) ->
  forall env, Forall2 (fun s p => exists i, p = Some (s, i) /\ In i (S s)) free env -> forall J, lawful J -> peval S J env e = 0.
Proof.
  intro D. induction free as [|s free IH]; cbn; intros w e le F H env P J L; inversion P; subst; auto.
  apply andb_prop in F as [F1 F2]. destruct H2 as [i [-> I]].
  apply (weigh_ok w S s e l' le F1 (D s)); auto. intros J' L'. refine (IH _ _ _ F2 H _ H4 J' L'). lia.
Qed.
End Free.
