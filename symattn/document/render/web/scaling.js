'use strict';
// Scores of vectors with entries ±1, each as likely: their distribution is known exactly, and so are the weights of a
// row.
{
  const { Fraction, Quotient, decimal } = globalThis.exactly;
  const page = document.querySelector('.symattn'),
    [scores, weights] = [...page.querySelectorAll('.step>.main')].map(main =>
      main.appendChild(document.createElement('div')),
    );
  const KEYS = 12,
    WIDE = 480,
    HIGH = 190,
    FOOT = 150,
    MOST = 1024;
  const ONE = new Fraction(1n);

  // Signs from a fixed seed: the first entries of longer vectors are those of shorter ones.
  function signs(seed, count) {
    let a = seed;
    return Array.from({ length: count }, () => {
      a = (a + 0x6d2b79f5) | 0;
      let t = Math.imul(a ^ (a >>> 15), 1 | a);
      t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
      return (t >>> 13) & 1 ? 1 : -1;
    });
  }
  const query = signs(1, MOST),
    keys = Array.from({ length: KEYS }, (_, j) => signs(j + 2, MOST));
  const score = (d, j) => query.slice(0, d).reduce((s, x, l) => s + x * keys[j][l], 0);

  // P(q·k = d − 2m) = C(d, m) / 2^d, as fractions of whole numbers.
  function distribution(d) {
    const found = [];
    let c = 1n;
    for (let m = 0; m <= d; m++) {
      found.push([d - 2 * m, Number((c << 40n) >> BigInt(d)) / 2 ** 40]);
      c = (c * BigInt(d - m)) / BigInt(m + 1);
    }
    return found;
  }
  const text = (x, y, words, more = '') =>
    `<text x="${x}" y="${y}" font-size="13" fill="var(--sa-mute)"${more}>${words}</text>`;
  const ROOT = 'q·k/√d<tspan dy="3" font-size="72%">k</tspan>';
  // A bar for each value of a distribution between ±far.
  function histogram(points, far, title, said, role) {
    const most = Math.max(...points.map(([, p]) => p)),
      place = x => (WIDE / 2) * (1 + x / far);
    const wide = Math.min(24, Math.max(0.8, (points.length > 1 ? place(points[0][0]) - place(points[1][0]) : 24) - 1));
    const drawn = points
      .filter(([x, p]) => Math.abs(x) <= far && p > most / 1000)
      .map(
        ([x, p]) =>
          `<rect x="${(place(x) - wide / 2).toFixed(2)}" y="${(FOOT - (120 * p) / most).toFixed(2)}" width="${wide.toFixed(2)}" ` +
          `height="${((120 * p) / most).toFixed(2)}" fill="var(--sa-${role})"/>`,
      )
      .join('');
    const ticks = [
      [0, -far],
      [WIDE / 2, 0],
      [WIDE, far],
    ]
      .map(([x, v], i) =>
        text(x, FOOT + 18, `${v}`.replace('-', '−'), ` text-anchor="${['start', 'middle', 'end'][i]}"`),
      )
      .join('');
    return (
      `<svg viewBox="0 0 ${WIDE} ${HIGH}" role="img" aria-label="${said}"><path d="M0 ${FOOT}H${WIDE}" stroke="var(--sa-rule)"/>` +
      `${drawn}${ticks}${text(0, 16, title)}</svg>`
    );
  }
  const HIGHS = '⁰¹²³⁴⁵⁶⁷⁸⁹';
  const power = s => {
    const [a, b] = s.split('e-');
    return b ? `${a}·10⁻${[...`${+b}`].map(c => HIGHS[c]).join('')}` : a;
  };
  function row(exponents, root, role, title, said) {
    const sum = new Map();
    for (const k of exponents) sum.set(`${k}`, { k, c: ONE.plus(sum.get(`${k}`)?.c ?? new Fraction(0n)) });
    const below = [...sum.values()].sort((s, t) => s.k.compare(t.k));
    const shown = exponents.map(k => decimal(new Quotient([{ k, c: ONE }], below, root), 3));
    const drawn = shown
      .map(
        (w, j) =>
          `<rect x="60" y="${24 + 15 * j}" width="${(300 * Number(w)).toFixed(1)}" height="11" fill="var(--sa-${role})"/>` +
          text(0, 34 + 15 * j, `key ${j + 1}`) +
          text(Math.max(66, 66 + 300 * Number(w)), 34 + 15 * j, power(w)),
      )
      .join('');
    const top = shown.reduce((a, b) => (Number(b) > Number(a) ? b : a));
    return `<svg viewBox="0 0 ${WIDE} ${34 + 15 * KEYS}" role="img" aria-label="${said}: the largest weight is ${top}">${text(0, 14, title)}${drawn}</svg>`;
  }
  function draw(d) {
    let [f, root] = [1n, BigInt(d)];
    for (let m = 2n; m * m <= root; m++) while (root % (m * m) === 0n) [root, f] = [root / (m * m), f * m];
    const points = distribution(d),
      size = Math.sqrt(d),
      integers = Array.from({ length: KEYS }, (_, j) => BigInt(score(d, j)));
    out.textContent = `${d}`;
    facts.innerHTML = `Var(q·k) = <b>${d}</b>, Var(q·k/√d<sub>k</sub>) = <b>1</b>: exactly, for entries ±1, each as likely.`;
    pictures[0].innerHTML =
      histogram(points, 100, 'q·k', 'Distribution of q·k', 'ink') +
      histogram(
        points.map(([x, p]) => [x / size, p]),
        4,
        ROOT,
        'Distribution of q·k/√d_k',
        'score',
      );
    pictures[1].innerHTML =
      row(
        integers.map(s => new Fraction(s)),
        1n,
        'ink',
        'softmax of q·k',
        'Without the root',
      ) +
      row(
        integers.map(s => new Fraction(s, f * root)),
        root,
        'score',
        `softmax of ${ROOT}`,
        'With the root',
      );
  }
  scores.innerHTML =
    '<p class="controls"><label>d<sub>k</sub> <input type="range" min="0" max="10" step="1" aria-label="d_k"> <output></output></label></p>' +
    '<p class="facts"></p><div class="arrows plots"></div>';
  weights.innerHTML = '<div class="arrows plots"></div>';
  const slider = scores.querySelector('input'),
    out = scores.querySelector('output'),
    facts = scores.querySelector('.facts');
  const pictures = [scores, weights].map(at => at.querySelector('.plots'));
  const asked = Number(new URLSearchParams(location.hash.slice(1)).get('d_k') ?? JSON.parse(page.dataset.state).d_k);
  slider.value = Math.round(Math.log2(Math.min(MOST, Math.max(1, asked || 64))));
  slider.addEventListener('input', () => {
    draw(2 ** slider.value);
    history.replaceState(null, '', `#d_k=${2 ** slider.value}`);
  });
  draw(2 ** slider.value);
}
