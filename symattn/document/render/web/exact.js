'use strict';
// Attention in exact numbers: fractions of whole numbers, quotients of sums c·e^(r√D), enclosures for decimals, and
// floating formats in which every operation is rounded to nearest, ties to even. No number is ever a double.

// -- fractions --------------------------------------------------------------------------------------------------------
const abs = n => (n < 0n ? -n : n);
const gcd = (a, b) => {
  for (a = abs(a), b = abs(b); b;) [a, b] = [b, a % b];
  return a;
};
const bits = n => {
  const hex = abs(n).toString(16);
  return n ? 4 * hex.length - Math.clz32(parseInt(hex[0], 16)) + 28 : 0;
};

class Fraction {
  constructor(n, d = 1n) {
    const g = d === 1n ? 1n : gcd(n, d) || 1n,
      sign = d < 0n ? -1n : 1n;
    this.n = (sign * n) / g;
    this.d = (sign * d) / g;
  }
  // n/d · 2^e with d > 0, not in lowest terms: for the ends of enclosures, where that would be much work for nothing. A
  // large power of 2 is never written out: e^(10⁶) has more than a million binary digits.
  static raw(n, d, e = 0n) {
    return Object.assign(Object.create(Fraction.prototype), { n, d, e });
  }
  static of(text) {
    const found = /^\s*([-−+]?)(\d+)(?:\s*\/\s*(\d+)|\.(\d+))?\s*$/.exec(text);
    if (!found || (found[3] && !BigInt(found[3]))) return null;
    const scale = 10n ** BigInt(found[4]?.length ?? 0),
      n = BigInt(found[2] + (found[4] ?? ''));
    return new Fraction(/[-−]/.test(found[1]) ? -n : n, found[3] ? BigInt(found[3]) : scale);
  }
  plus(x) {
    return new Fraction(this.n * x.d + x.n * this.d, this.d * x.d);
  }
  minus(x) {
    return this.plus(x.negated());
  }
  times(x) {
    return new Fraction(this.n * x.n, this.d * x.d);
  }
  over(x) {
    return new Fraction(this.n * x.d, this.d * x.n);
  }
  negated() {
    return new Fraction(-this.n, this.d);
  }
  compare(x) {
    const gap = this.n * x.d - x.n * this.d;
    return gap < 0n ? -1 : gap > 0n ? 1 : 0;
  }
  toString() {
    return this.d === 1n ? `${this.n}` : `${this.n}/${this.d}`;
  }
}
const ZERO = new Fraction(0n),
  ONE = new Fraction(1n);
const dot = (xs, ys) => xs.reduce((sum, x, i) => sum.plus(x.times(ys[i])), ZERO);
const column = (matrix, j) => matrix.map(row => row[j]);
const product = (a, b) => a.map(row => b[0].map((_, j) => dot(row, column(b, j))));

// -- sums of exponentials, [{ k, c }] by ascending exponent k√D -------------------------------------------------------
function collected(terms) {
  const found = new Map();
  for (const { k, c } of terms) found.set(`${k}`, { k, c: c.plus(found.get(`${k}`)?.c ?? ZERO) });
  return [...found.values()].filter(t => t.c.n).sort((s, t) => s.k.compare(t.k));
}
const shifted = (sum, by) => sum.map(({ k, c }) => ({ k: k.minus(by), c }));
const scaled = (sum, by) => sum.map(({ k, c }) => ({ k, c: c.times(by) }));
const content = sum =>
  new Fraction(
    sum.reduce((g, t) => gcd(g, t.c.n), 0n),
    sum.reduce((m, t) => (m / gcd(m, t.c.d)) * t.c.d, 1n),
  );

// -- common factors of polynomials with whole coefficients, lowest power first: modulo primes, then tried over ℤ
const FIRST_PRIME = 33554393; // below 2²⁵, so that products of residues are exact doubles
function primeBelow(n) {
  for (let p = n - 1; ; p--) {
    let m = 2;
    while (m * m <= p && p % m) m++;
    if (m * m > p) return p;
  }
}
const trimmed = f => {
  while (f.length && !f.at(-1)) f.pop();
  return f;
};
function inverse(x, prime) {
  let found = 1;
  for (let e = prime - 2, y = x; e; e = Math.floor(e / 2), y = (y * y) % prime) if (e % 2) found = (found * y) % prime;
  return found;
}
// The common factor modulo a prime that divides neither highest coefficient, with highest coefficient 1.
function commonModulo(p, q, prime) {
  const at = f => f.map(c => Number(((c % BigInt(prime)) + BigInt(prime)) % BigInt(prime)));
  let [a, b] = [at(p), at(q)];
  while (b.length) {
    for (const by = inverse(b.at(-1), prime); a.length >= b.length;) {
      const c = (a.at(-1) * by) % prime,
        low = a.length - b.length;
      for (let i = 0; i < b.length; i++) a[low + i] = (a[low + i] + (prime - c) * b[i]) % prime;
      a.pop();
      trimmed(a);
    }
    [a, b] = [b, a];
  }
  const by = inverse(a.at(-1), prime);
  return a.map(c => (c * by) % prime);
}
const primitive = f => {
  const g = f.reduce(gcd, 0n) || 1n;
  return f.map(c => c / g);
};
// The greatest common factor: from residues modulo as many primes as its coefficients need.
function common(p, q) {
  const lead = gcd(p.at(-1), q.at(-1));
  let found = null,
    modulus = 1n;
  for (let prime = FIRST_PRIME; ; prime = primeBelow(prime)) {
    const m = BigInt(prime);
    if (!(p.at(-1) % m) || !(q.at(-1) % m)) continue;
    const residues = commonModulo(p, q, prime).map(c => (BigInt(c) * lead) % m);
    if (residues.length === 1) return [1n];
    if (found && residues.length > found.length) continue; // an unlucky prime
    if (!found || residues.length < found.length) [found, modulus] = [residues, m];
    else {
      const by = BigInt(inverse(Number(modulus % m), prime));
      found = found.map((c, i) => c + modulus * (((((residues[i] - c) % m) + m) * by) % m));
      modulus *= m;
    }
    const centred = found.map(c => (2n * c > modulus ? c - modulus : c)),
      factor = primitive(centred);
    if (divided(p, factor) && divided(q, factor)) return factor;
  }
}
// p/g, or null if g does not divide it.
function divided(p, g) {
  const rest = [...p],
    found = Array(p.length - g.length + 1).fill(0n);
  for (let i = found.length - 1; i >= 0; i--) {
    if (rest[i + g.length - 1] % g.at(-1)) return null;
    found[i] = rest[i + g.length - 1] / g.at(-1);
    if (!found[i]) continue;
    g.forEach((c, j) => {
      rest[i + j] -= found[i] * c;
    });
  }
  return rest.some(c => c) ? null : found;
}
// Sums whose exponents span more steps for each term are not searched for common factors, here and in symattn.
const MAX_STEPS_PER_TERM = 64n;
function cancelled(n, d) {
  if (n.length < 2 || d.length < 2) return [n, d];
  const lows = [n[0].k, d[0].k],
    gaps = [n, d].map((f, i) => f.map(t => t.k.minus(lows[i])));
  const all = gaps.flat(),
    below = all.reduce((m, k) => (m / gcd(m, k.d)) * k.d, 1n);
  const step = new Fraction(
    all.reduce((g, k) => gcd(g, (k.n * below) / k.d), 0n),
    below,
  );
  const spans = gaps.map(ks => ks.at(-1).over(step).n);
  if (spans.some(s => s > MAX_STEPS_PER_TERM * BigInt(n.length + d.length))) return [n, d];
  const whole = [n, d].map((f, i) => {
    const by = content(f),
      p = Array(Number(spans[i]) + 1).fill(0n);
    f.forEach((t, j) => {
      p[Number(gaps[i][j].over(step).n)] = t.c.over(by).n;
    });
    return { by, p };
  });
  const g = common(whole[0].p, whole[1].p);
  if (g.length < 2) return [n, d];
  return whole.map(({ by, p }, i) =>
    collected(
      divided(p, g).map((c, j) => ({
        k: lows[i].plus(step.times(new Fraction(BigInt(j)))),
        c: by.times(new Fraction(c)),
      })),
    ),
  );
}

// ratio · N / D in lowest terms: N and D have coprime whole coefficients, the highest of D is positive, and the lowest
// exponent is 0.
class Quotient {
  constructor(numerator, denominator, root = 1n) {
    [this.root, this.zero] = [root, !numerator.length];
    if (this.zero) return;
    let [n, d] = cancelled(numerator, denominator);
    const low = d.length === 1 ? d[0].k : n[0].k.compare(d[0].k) < 0 ? n[0].k : d[0].k;
    [n, d] = [shifted(n, low), shifted(d, low)];
    const flip = new Fraction(d.at(-1).c.n < 0n ? -1n : 1n),
      above = content(n),
      below = content(d);
    this.numerator = scaled(n, flip.over(above));
    this.denominator = scaled(d, flip.over(below));
    this.ratio = above.over(below);
  }
  static of(x) {
    return new Quotient(x.n ? [{ k: ZERO, c: x }] : [], [{ k: ZERO, c: ONE }]);
  }
  // This number minus a fraction.
  minus(x) {
    if (this.zero) return Quotient.of(x.negated());
    const above = [...scaled(this.numerator, this.ratio), ...scaled(this.denominator, x.negated())];
    return new Quotient(collected(above), this.denominator, this.root);
  }
  get rational() {
    if (this.zero) return ZERO;
    const [n, d] = [this.numerator, this.denominator];
    return n.length + d.length === 2 && !n[0].k.n ? this.ratio.times(n[0].c) : null;
  }
  interval(p) {
    const [a, b] = [this.numerator, this.denominator].map(f => sumInterval(f, this.root, p));
    return [over(a, b, -1), over(a, b, 1)].map(x => Fraction.raw(x.n * this.ratio.n, x.d * this.ratio.d, x.e));
  }
}
// c√D, a score that was divided by √d_k.
class Root {
  constructor(c, root) {
    [this.c, this.root, this.zero] = [c, root, !c.n];
  }
  get rational() {
    return this.root === 1n || this.zero ? this.c : null;
  }
  interval(p) {
    const w = BigInt(p),
      { n, d } = this.c,
      low = isqrt((n * n * this.root) << (2n * w)) / d,
      one = d << w;
    const pair = [Fraction.raw(low * d, one), Fraction.raw((low + 2n) * d, one)];
    return n < 0n ? pair.map(x => x.negated()).reverse() : pair;
  }
}

// -- enclosures: [lo, hi]·2^e with whole lo, hi -----------------------------------------------------------------------
function isqrt(n) {
  if (n < 2n) return n;
  for (let x = 1n << BigInt((bits(n) + 1) >> 1); ;) {
    const next = (x + n / x) >> 1n;
    if (next >= x) return x;
    x = next;
  }
}
const floored = (a, b) => a / b - (a % b && a < 0n !== b < 0n ? 1n : 0n);
const LOGS = new Map();
// log 2 · 2^w, at most 60 too small or too large: 18 artanh(1/26) − 2 artanh(1/4801) + 8 artanh(1/8749).
function log2(w) {
  if (LOGS.has(w)) return LOGS.get(w);
  const v = w + 16n,
    wide = 18n * artanhAt(26n, v) - 2n * artanhAt(4801n, v) + 8n * artanhAt(8749n, v);
  LOGS.set(w, wide >> 16n);
  return LOGS.get(w);
}
function artanhAt(m, w) {
  let sum = 0n;
  for (let power = (1n << w) / m, k = 1n; power; k += 2n, power /= m * m) sum += power / k;
  return sum;
}
// e^(k√D): x = X·2^−w with an error of some units, less j·log 2; then Taylor's series, each term cut to a whole number.
function exponential(k, root, p) {
  const w = BigInt(p + 16 + Math.max(0, bits(k.n) - bits(k.d) + bits(root)));
  const size = root === 1n ? (abs(k.n) << w) / k.d : isqrt((k.n * k.n * root) << (2n * w)) / k.d;
  const x = k.n < 0n ? -size : size,
    log = log2(w),
    j = floored(x + (log >> 1n), log),
    r = x - j * log;
  let sum = 1n << w,
    term = sum,
    count = 1n;
  for (let i = 1n; term; i++, count++) {
    term = floored(term * r, i << w);
    sum += term;
    if (term === -1n) break;
  }
  const error = 2n * (2n + (64n * (abs(j) + 1n)) / 64n) + 4n * count + 8n;
  return { lo: sum - error, hi: sum + error, e: j - w };
}
// n·2^−by, rounded down and up.
function rounded(n, by) {
  if (by <= 0n) return [n << -by, n << -by];
  const low = by > BigInt(bits(n)) ? (n < 0n ? -1n : 0n) : n >> by;
  return [low, low + 1n];
}
function sumInterval(sum, root, p) {
  const terms = sum.map(({ k, c }) => {
    const { lo, hi, e } = k.n ? exponential(k, root, p) : { lo: 1n, hi: 1n, e: 0n };
    return c.n < 0n ? { lo: c.n * hi, hi: c.n * lo, e } : { lo: c.n * lo, hi: c.n * hi, e };
  });
  const tops = terms.map(t => t.e + BigInt(Math.max(bits(t.lo), bits(t.hi))));
  const e = tops.reduce((a, b) => (a > b ? a : b)) - BigInt(p + 8);
  const total = [0n, 0n];
  for (const t of terms) {
    total[0] += rounded(t.lo, e - t.e)[0];
    total[1] += rounded(t.hi, e - t.e)[1];
  }
  return { lo: total[0], hi: total[1], e };
}
// The quotient's lower (−1) or upper (1) end; the denominator is positive.
function over(a, b, side) {
  const top = side < 0 ? a.lo : a.hi,
    below = top < 0n === side < 0 ? b.lo : b.hi;
  return below <= 0n ? null : Fraction.raw(top, below, a.e - b.e);
}
// The same number without its power of 2.
const expanded = ({ n, d, e = 0n }) => (e > 0n ? Fraction.raw(n << e, d) : Fraction.raw(n, d << -e));
const PATIENCE = 1 << 14;
// What a function gives at both ends of ever smaller enclosures, once it gives the same.
function decided(x, function_) {
  if (x.rational) return function_(x.rational);
  for (let p = 96; p <= PATIENCE; p *= 2) {
    const [low, high] = x.interval(p);
    if (!low || !high || low.n < 0n !== high.n < 0n || !low.n) continue;
    const [a, b] = [function_(low), function_(high)];
    if (`${a}` === `${b}`) return a;
  }
  throw new Error('undecided');
}
for (const kind of [Quotient, Root]) {
  const own = kind.prototype.interval;
  kind.prototype.interval = function safe(p) {
    try {
      return own.call(this, p);
    } catch {
      return [null, null];
    }
  };
}

// -- decimals ---------------------------------------------------------------------------------------------------------
const TEN = 10n;
const MAX_EXPANDED = 4096n; // a larger power of 2 is not written out
// log 10 · 2^w, at most 200 too small or too large: 3 log 2 + 2 artanh(1/9).
const log10 = w => 3n * log2(w) + ((2n * artanhAt(9n, w + 16n)) >> 16n);
// 10^n for n ≥ 0 as [lo, hi]·2^e, cut to w bits after each product.
function powerOfTen(n, w) {
  let found = { lo: 1n, hi: 1n, e: 0n },
    square = { lo: TEN, hi: TEN, e: 0n };
  const times_ = (a, b) => {
    const by = BigInt(Math.max(0, bits(a.hi * b.hi) - w));
    return { lo: rounded(a.lo * b.lo, by)[0], hi: rounded(a.hi * b.hi, by)[1], e: a.e + b.e + by };
  };
  for (; n; n >>= 1n) {
    if (n & 1n) found = times_(found, square);
    square = times_(square, square);
  }
  return found;
}
// The digits of size/d · 2^e for an e that is too large to be written out: from enclosures of the power of ten, until
// both ends give the same digits.
function scientificOfPower({ n, d, e }, digits) {
  const size = abs(n),
    total = e + BigInt(bits(size) - bits(d)),
    more = bits(total) + 32;
  const ten = TEN ** BigInt(digits);
  for (let w = 128 + more; w <= PATIENCE; w *= 2) {
    let place = floored(total * log2(BigInt(more + 64)), log10(BigInt(more + 64)));
    for (let tries = 0; tries < 4; tries++) {
      const by = place - BigInt(digits - 1),
        power = powerOfTen(abs(by), w);
      const ends = ['hi', 'lo'].map((end, i) => {
        const other = by < 0n ? (end === 'hi' ? power.lo : power.hi) : power[end];
        const shift = by < 0n ? e + power.e : e - power.e;
        const [above, below] = by < 0n ? [size * other, d] : [size, d * other];
        if (shift > 2n ** 20n || shift < -(2n ** 20n)) return shift > 0n ? 100n * ten : 0n;
        return nearest(shift < 0n ? Fraction.raw(above, below << -shift) : Fraction.raw(above << shift, below));
      });
      if (ends[1] < ten / TEN) place -= 1n;
      else if (ends[0] > ten) place += 1n;
      else if (ends[0] !== ends[1]) break;
      else {
        const whole = ends[0] === ten ? ten / TEN : ends[0];
        return digitsOf(n < 0n, whole, ends[0] === ten ? place + 1n : place, false);
      }
    }
  }
  throw new Error('undecided');
}
const digitsOf = (negative, whole, e, exact) => ({
  negative,
  whole,
  e,
  exact,
  toString() {
    return `${negative}${whole}e${e}`;
  },
});
function scientific(x, digits) {
  const power = x.e ?? 0n;
  if (abs(power) > MAX_EXPANDED) return scientificOfPower(x, digits);
  if (power) return scientific(expanded(x), digits);
  const size = abs(x.n),
    a = size.toString().length - x.d.toString().length,
    ten = e => TEN ** BigInt(Math.abs(e));
  let e = (a < 0 ? size * ten(a) < x.d : size < x.d * ten(a)) ? a - 1 : a;
  const up = digits - 1 - e,
    shown = up < 0 ? Fraction.raw(size, x.d * ten(up)) : Fraction.raw(size * ten(up), x.d);
  let whole = nearest(shown);
  const exact = shown.n % shown.d === 0n;
  if (whole === ten(digits)) [whole, e] = [whole / TEN, e + 1];
  return digitsOf(x.n < 0n, whole, e, exact);
}
function nearest(x) {
  const low = floored(x.n, x.d),
    twice = 2n * (x.n - low * x.d);
  return twice > x.d || (twice === x.d && low & 1n) ? low + 1n : low;
}
function written({ negative, whole, e }, digits, exact) {
  let s = `${whole}`.padEnd(e < digits ? Number(e) + 1 : 1, '0'),
    tail = '';
  if (e >= -4 && e < digits) s = e >= 0 ? `${s.slice(0, e + 1)}.${s.slice(e + 1)}` : `0.${'0'.repeat(-e - 1)}${s}`;
  else [s, tail] = [`${s[0]}.${s.slice(1)}`, `e${e < 0 ? '-' : '+'}${`${e}`.replace('-', '').padStart(2, '0')}`];
  if (exact) s = s.replace(/0+$/, '');
  return (negative ? '-' : '') + s.replace(/\.$/, '') + tail;
}
function decimal(x, digits = 9) {
  if (x === FORBIDDEN) return '−∞';
  if (x.zero || (x.rational && !x.rational.n)) return '0';
  const found = decided(x, y => scientific(y, digits));
  return written(found, digits, x.rational ? found.exact : false);
}

// -- exact numbers as formulas ----------------------------------------------------------------------------------------
// A formula is an array: ['n', whole], ['p', exponent], ['r', radicand], ['*', …], ['+', …], ['/', above, below],
// ['-', body].
const times = (n, f) => (n === 1n ? f : ['*', ['n', n], ...(f[0] === '*' ? f.slice(1) : [f])]);
const signed = (n, f) => (n < 0n ? ['-', f] : f);
const divide = (f, q) => (q === 1n ? f : ['/', f, ['n', q]]);
function constant(c, root) {
  const n = abs(c.n);
  if (root === 1n || !n) return signed(c.n, divide(['n', n], c.d));
  if (c.d % root === 0n) return signed(c.n, ['/', ['n', n], times(c.d / root, ['r', root])]);
  return signed(c.n, divide(times(n, ['r', root]), c.d));
}
function exponentials(sum, root) {
  const parts = sum.map(({ k, c }) => {
    const body = k.n
      ? times(abs(c.n), ['p', k.n === 1n && k.d === 1n && root === 1n ? null : constant(k, root)])
      : ['n', abs(c.n)];
    return signed(c.n, body);
  });
  return parts.length === 1 ? parts[0] : ['+', ...parts];
}
function formula(x) {
  if (x === FORBIDDEN) return ['∞'];
  if (x instanceof Root) return constant(x.c, x.root);
  if (x.rational) return constant(x.rational, 1n);
  const lead = sum =>
    sum[0].c.n > 0n
      ? [1n, sum]
      : sum.at(-1).c.n > 0n
        ? [1n, [...sum].reverse()]
        : [-1n, scaled(sum, new Fraction(-1n))];
  const [s, n] = lead(x.numerator),
    [t, d] = lead(x.denominator),
    { n: p, d: q } = x.ratio;
  const whole = d.length === 1 && !d[0].k.n;
  const multiple = (by, sum, out) =>
    out || sum.length === 1
      ? exponentials(scaled(sum, new Fraction(by)), x.root)
      : times(by, exponentials(sum, x.root));
  const above = multiple(p, n, whole && q === 1n);
  return signed(s * t, whole ? divide(above, q) : ['/', above, multiple(q, d, false)]);
}
const isBig = f => f[0] === '+' || f[0] === '-';
const UP = '⁰¹²³⁴⁵⁶⁷⁸⁹';
// As text: plainly, as ``sympy.sympify`` reads it, or with raised digits.
function text(f, plain = false) {
  const wrap = (g, all) =>
    isBig(g) || (all && (g[0] === '*' || g[0] === '/')) ? `(${text(g, plain)})` : text(g, plain);
  switch (f[0]) {
    case 'n':
      return `${f[1]}`;
    case '∞':
      return plain ? '-oo' : '−∞';
    case 'r':
      return plain ? `sqrt(${f[1]})` : `√${f[1]}`;
    case '-':
      return (plain ? '-' : '−') + wrap(f[1]);
    case '*':
      return f
        .slice(1)
        .map(g => wrap(g))
        .join(plain ? '*' : '')
        .replace(/^(\d+)√/, '$1√');
    case '/':
      return `${wrap(f[1])}/${wrap(f[2], true)}`;
    case '+':
      return f
        .slice(1)
        .map((g, i) =>
          g[0] === '-'
            ? (plain ? '-' : i ? ' − ' : '−') + text(g[1], plain)
            : (i ? (plain ? '+' : ' + ') : '') + text(g, plain),
        )
        .join('');
    default: {
      const k = f[1] ?? ['n', 1n];
      if (plain) return `exp(${text(k, true)})`;
      return f[1] ? (k[0] === 'n' ? `e${[...`${k[1]}`].map(c => UP[c]).join('')}` : `e^(${text(k)})`) : 'e';
    }
  }
}
function mathml(f, flat = false) {
  const mo = (sign, more = '') => `<mo${more}>${sign}</mo>`,
    row = inner => `<mrow>${inner}</mrow>`;
  const wrap = (g, all) =>
    isBig(g) || (all && 'nrp'.indexOf(g[0]) < 0)
      ? row(mo('(', ' lspace="0" rspace="0"') + mathml(g, flat) + mo(')', ' lspace="0" rspace="0"'))
      : mathml(g, flat);
  switch (f[0]) {
    case 'n':
      return `<mn>${f[1]}</mn>`;
    case '∞':
      return row(`${mo('−')}<mi>∞</mi>`);
    case 'r':
      return `<msqrt><mn>${f[1]}</mn></msqrt>`;
    case '-':
      return row(mo('−') + wrap(f[1]));
    case '*':
      return row(
        f
          .slice(1)
          .map(g => wrap(g))
          .join(mo('\u2062')),
      );
    case '/':
      return flat
        ? row(wrap(f[1]) + mo('/', ' lspace="0" rspace="0"') + wrap(f[2], true))
        : `<mfrac>${mathml(f[1], true)}${mathml(f[2], true)}</mfrac>`;
    case '+':
      return row(
        f
          .slice(1)
          .map((g, i) => (g[0] === '-' ? mo('−') + mathml(g[1], flat) : (i ? mo('+') : '') + mathml(g, flat)))
          .join(''),
      );
    default: {
      const e = '<mi mathvariant="normal">e</mi>';
      return f[1] ? `<msup>${e}${mathml(f[1], true)}</msup>` : e;
    }
  }
}

// -- attention --------------------------------------------------------------------------------------------------------
const FORBIDDEN = { forbidden: true };
// d = f²·D without squares in D.
function squarefree(d) {
  let f = 1n;
  for (let m = 2n; m * m <= d; m++) while (d % (m * m) === 0n) [d, f] = [d / (m * m), f * m];
  return [f, d];
}
const isCut = (state, i, j) => state.causal && j > i;
const parts = (matrix, heads, h) => {
  const w = matrix[0].length / heads;
  return matrix.map(row => row.slice(h * w, h * w + w));
};

// Every array, exact: q, k, v, and for each head scores, scaled scores, weights and what they mix.
function attention({ x, w_q, w_k, w_v, ...state }) {
  const [q, k, v] = [w_q, w_k, w_v].map(w => product(x, w));
  const heads = Array.from({ length: state.heads }, (_, h) => {
    const [qs, ks, vs] = [q, k, v].map(m => parts(m, state.heads, h));
    const [f, root] = state.scale === 'none' ? [1n, 1n] : squarefree(BigInt(qs[0].length));
    const by = new Fraction(1n, f * root).over(state.temperature);
    const scores = qs.map(row => ks.map(other => dot(row, other)));
    const exponents = scores.map((row, i) => row.map((s, j) => (isCut(state, i, j) ? FORBIDDEN : s.times(by))));
    const open = exponents.map(row => row.flatMap((k_, j) => (k_ === FORBIDDEN ? [] : [{ k: k_, j }])));
    const below = open.map(row => collected(row.map(({ k: k_ }) => ({ k: k_, c: ONE }))));
    const weights = exponents.map((row, i) =>
      row.map(k_ => new Quotient(k_ === FORBIDDEN ? [] : [{ k: k_, c: ONE }], below[i], root)),
    );
    const output = open.map((row, i) =>
      vs[0].map((_, c) => new Quotient(collected(row.map(({ k: k_, j }) => ({ k: k_, c: vs[j][c] }))), below[i], root)),
    );
    const shown = exponents.map(row => row.map(k_ => (k_ === FORBIDDEN ? k_ : new Root(k_, root))));
    return { q: qs, k: ks, v: vs, scores, scaled: shown, weights, output };
  });
  return { q, k, v, heads, output: heads[0].output.map((_, i) => heads.flatMap(h => h.output[i])) };
}

// -- floating formats -------------------------------------------------------------------------------------------------
const FORMATS = {
  float64: [53, -1074, 1024],
  float32: [24, -149, 128],
  float16: [11, -24, 16],
  bfloat16: [8, -133, 128],
};
const INF = Infinity,
  isNumber = x => x instanceof Fraction;
class Format {
  constructor(name) {
    [this.bits, this.lowest, this.highest] = FORMATS[name];
  }
  // The number of the format that is nearest to a fraction.
  round(x) {
    if (!isNumber(x) || !x.n) return x;
    if (x.e) {
      const high = x.e + BigInt(bits(x.n) - bits(x.d)); // the number is between 2^(high − 1) and 2^(high + 1)
      if (high > this.highest + 1) return x.n < 0n ? -INF : INF;
      if (high < this.lowest - 2) return ZERO;
      return this.round(expanded(x));
    }
    const size = abs(x.n),
      half = bits(size) - bits(x.d);
    const e = (half < 0 ? size << BigInt(-half) < x.d : size < x.d << BigInt(half)) ? half - 1 : half;
    const unit = Math.max(e - this.bits + 1, this.lowest),
      by = BigInt(Math.abs(unit));
    const whole = nearest(unit < 0 ? Fraction.raw(size << by, x.d) : Fraction.raw(size, x.d << by));
    const found = new Fraction(unit < 0 ? whole : whole << by, unit < 0 ? 1n << by : 1n);
    if (bits(found.n) - bits(found.d) >= this.highest) return x.n < 0n ? -INF : INF;
    return x.n < 0n ? found.negated() : found;
  }
  // Doubles stand for ±∞ and NaN alone: their arithmetic is that of the standard.
  apply(a, b, exact, special) {
    if (isNumber(a) && isNumber(b)) return this.round(exact(a, b));
    const sign = x => (isNumber(x) ? Number(x.n > 0n) - Number(x.n < 0n) : x),
      found = special(sign(a), sign(b));
    return found === 0 ? ZERO : found;
  }
  plus(a, b) {
    return this.apply(
      a,
      b,
      (x, y) => x.plus(y),
      (x, y) => x + y,
    );
  }
  minus(a, b) {
    return this.apply(
      a,
      b,
      (x, y) => x.minus(y),
      (x, y) => x - y,
    );
  }
  times(a, b) {
    return this.apply(
      a,
      b,
      (x, y) => x.times(y),
      (x, y) => x * y,
    );
  }
  over(a, b) {
    if (isNumber(a) && isNumber(b) && !b.n) return a.n ? INF : NaN;
    return this.apply(
      a,
      b,
      (x, y) => x.over(y),
      (x, y) => x / y,
    );
  }
  exp(x) {
    if (!isNumber(x)) return x === -INF ? ZERO : x;
    if (!x.n) return ONE;
    if (x.compare(new Fraction(BigInt(this.highest))) > 0) return INF;
    if (x.compare(new Fraction(BigInt(this.lowest - 2))) < 0) return ZERO;
    return decided(new Quotient([{ k: x, c: ONE }], [{ k: ZERO, c: ONE }]), y => this.round(y));
  }
  sqrt(x) {
    return decided(new Root(new Fraction(squarefree(x)[0]), squarefree(x)[1]), y => this.round(y));
  }
  dot(xs, ys) {
    return xs.map((x, i) => this.times(x, ys[i])).reduce((sum, x) => this.plus(sum, x));
  }
  // The fewest digits that name the number.
  shortest(x) {
    if (!isNumber(x)) return x === INF ? '∞' : x === -INF ? '−∞' : 'NaN';
    if (!x.n) return '0';
    for (let digits = 1; digits < 18; digits++) {
      const found = scientific(x, digits),
        e = found.e - digits + 1,
        ten = TEN ** BigInt(Math.abs(e));
      const back = e < 0 ? new Fraction(found.whole, ten) : new Fraction(found.whole * ten);
      const same = this.round(back);
      if (isNumber(same) && same.n === abs(x.n) && same.d === x.d) return written(found, 17, true);
    }
    return `${x}`;
  }
}
const larger = (a, b) =>
  !isNumber(a)
    ? a === INF || Number.isNaN(a)
      ? a
      : b
    : !isNumber(b)
      ? b === -INF
        ? a
        : b
      : a.compare(b) < 0
        ? b
        : a;

// The same arrays in a floating format: sums from the first term to the last, the row's maximum subtracted first.
function floating(name, { x, w_q, w_k, w_v, ...state }) {
  const f = new Format(name),
    lift = m => m.map(row => row.map(y => f.round(y)));
  const [xs, ...ws] = [x, w_q, w_k, w_v].map(lift),
    [q, k, v] = ws.map(w => xs.map(row => w[0].map((_, j) => f.dot(row, column(w, j)))));
  const heads = Array.from({ length: state.heads }, (_, h) => {
    const [qs, ks, vs] = [q, k, v].map(m => parts(m, state.heads, h));
    const by = state.scale === 'none' ? ONE : f.sqrt(BigInt(qs[0].length)),
      t = f.round(state.temperature);
    const scores = qs.map(row => ks.map(other => f.dot(row, other)));
    const scaled_ = scores.map((row, i) => row.map((s, j) => (isCut(state, i, j) ? -INF : f.over(f.over(s, by), t))));
    const weights = scaled_.map(row => {
      const most = row.reduce(larger),
        es = row.map(s => f.exp(f.minus(s, most))),
        sum = es.reduce((a, b) => f.plus(a, b));
      return es.map(e => f.over(e, sum));
    });
    return {
      q: qs,
      k: ks,
      v: vs,
      scores,
      scaled: scaled_,
      weights,
      output: weights.map(row => vs[0].map((_, c) => f.dot(row, column(vs, c)))),
    };
  });
  return { q, k, v, heads, output: heads[0].output.map((_, i) => heads.flatMap(h => h.output[i])), format: f };
}

globalThis.exactly = {
  Fraction,
  Quotient,
  Root,
  Format,
  FORBIDDEN,
  FORMATS,
  attention,
  floating,
  formula,
  text,
  mathml,
  decimal,
  scientific,
};
