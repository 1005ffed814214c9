'use strict';
// The page to explore: inputs are edited in place, every step is computed again, and the link holds what was chosen.
{
  const { Fraction, Quotient, FORBIDDEN, FORMATS, attention, floating, formula, text, mathml, decimal } =
    globalThis.exactly;
  const page = document.querySelector('.symattn'),
    sections = [...page.querySelectorAll('.step>.main')];
  const MOST = 6,
    WORDS = [
      ['w_q', 'Q', 'query', 'queries'],
      ['w_k', 'K', 'key', 'keys'],
      ['w_v', 'V', 'value', 'values'],
    ];
  const escape = s => s.replace(/[&<>"]/g, c => `&#${c.charCodeAt(0)};`);
  const LOW = n => [...`${n}`].map(c => '₀₁₂₃₄₅₆₇₈₉'[c]).join('');
  const clean = s => s.replace(/^-/, '−');

  // -- state ----------------------------------------------------------------------------------------------------------
  const written = matrix => matrix.map(row => row.join(',')).join(';');
  const read = words => words.split(';').map(row => row.split(','));
  const plain = state => ({
    ...Object.fromEntries(['x', 'w_q', 'w_k', 'w_v'].map(name => [name, written(state[name])])),
    words: state.words.join(','),
    heads: `${state.heads}`,
    scale: state.scale,
    causal: state.causal ? '1' : '0',
    temperature: state.temperature,
    format: state.format,
  });
  // What a link says, wherever it is sound: its arrays fit each other, and no size is beyond the page.
  function opened() {
    const first = JSON.parse(page.dataset.state),
      asked = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
    const told = { ...first, ...asked },
      arrays = ['x', 'w_q', 'w_k', 'w_v'];
    const state = {
      words: told.words.split(','),
      heads: told.heads === '2' ? 2 : 1,
      scale: told.scale === 'none' ? 'none' : 'root',
      causal: told.causal === '1',
      temperature: told.temperature,
      format: told.format in FORMATS ? told.format : 'float32',
    };
    for (const name of arrays) state[name] = read(told[name]);
    const even = m =>
      m.length <= MOST && m[0].length <= MOST && m.every(row => row.length === m[0].length && row.every(Fraction.of));
    const fits =
      arrays.every(name => even(state[name])) &&
      arrays.slice(1).every(name => state[name].length === state.x[0].length) &&
      state.w_q[0].length === state.w_k[0].length &&
      !(state.w_q[0].length % state.heads) &&
      !(state.w_v[0].length % state.heads) &&
      Fraction.of(told.temperature)?.n > 0n;
    if (fits || !location.hash) return state;
    location.hash = '';
    return opened();
  }
  let state = opened();

  // -- arrays ---------------------------------------------------------------------------------------------------------
  let groups = 0,
    chosen = 'exact';
  const attributes = found =>
    Object.entries(found)
      .map(([key, value]) => ` data-${key}="${escape(value)}"`)
      .join('');
  const bracket = (sign, form) => `<mo form="${form}" fence="true" stretchy="true" lspace="0" rspace="0">${sign}</mo>`;
  const name = (base, sub, role) =>
    `<mrow class="r-${role}">${sub ? `<msub><mi>${base}</mi>${sub}</msub>` : `<mi>${base}</mi>`}</mrow>`;
  const digits = s => {
    const [a, b] = s.replace(/^-/, '−').split('e');
    return b
      ? `<mrow><mn>${a}</mn><mo>·</mo><msup><mn>10</mn><mn>${`${+b}`.replace('-', '−')}</mn></msup></mrow>`
      : `<mn>${a}</mn>`;
  };
  const maths = (inside, spoken, more = '') => `<math${more} alttext="${escape(spoken)}">${inside}</math>`;
  const rounded = s => maths(digits(s), s);
  const entry = x => maths(mathml(formula(x)), text(formula(x)), ' displaystyle="true"');
  function grid(rows) {
    const body = rows
      .map(row => `<mtr>${row.map(([cell, inner]) => `<mtd${cell}>${inner}</mtd>`).join('')}</mtr>`)
      .join('');
    return `<mrow>${bracket('[', 'prefix')}<mtable displaystyle="true">${body}</mtable>${bracket(']', 'postfix')}</mrow>`;
  }
  const isWhole = x => x !== FORBIDDEN && x.rational && x.rational.d === 1n;
  const lifted = matrix => matrix.map(row => row.map(x => (x instanceof Fraction ? Quotient.of(x) : x)));
  const cellOf = (array, letter, i, j, x) =>
    attributes({
      c: `${array}-${i + 1}-${j + 1}`,
      n: `${letter}${LOW(i + 1)}${LOW(j + 1)}`,
      t: text(formula(x)),
      ...(x === FORBIDDEN || x.rational?.d === 1n ? {} : { d: clean(decimal(x)) }),
    });

  // One array in its forms: exact, decimal, and as the floating format has it.
  function figure(of, exact, floats, format) {
    const rows = lifted(exact),
      whole = rows.flat().every(isWhole),
      group = `g${groups++}`;
    const cells = rows.map((row, i) => row.map((x, j) => cellOf(of.array, of.letter, i, j, x)));
    const forms = { exact: rows.map(row => row.map(x => mathml(formula(x)))) };
    if (!whole) forms.decimal = rows.map(row => row.map(x => digits(decimal(x))));
    const computed = floats.map(row => row.map(x => format.shortest(x)));
    if (!whole || computed.flat().some((s, i) => s !== decimal(rows.flat()[i])))
      forms[state.format] = computed.map(row => row.map(digits));
    const names = Object.keys(forms),
      shown = names.includes(chosen) ? chosen : 'exact',
      several = names.length > 1;
    const buttons = several
      ? names
          .map(
            (form, i) =>
              `<input type="radio" name="${group}" id="${group}-${i}" data-form="${form}"` +
              `${form === shown ? ' checked' : ''}><label for="${group}-${i}">${form}</label>`,
          )
          .join('')
      : '';
    const spoken = `${of.letter.toUpperCase()}, ${rows.length} by ${rows[0].length}`;
    const parts = names
      .map((form, i) => {
        const cellsOf = cells.map((row, r) =>
          row.map((cell, c) => [i ? cell.slice(0, cell.indexOf(' data-n')) : cell, forms[form][r][c]]),
        );
        const said = several ? `<span class="said">${form}</span>` : '';
        const sign = form === 'exact' ? '<mo>=</mo>' : form === 'decimal' ? '<mo>≈</mo>' : '<mspace width=".6em"/>';
        return `<div class="form wide${i || !several ? '' : ' roomy'}">${said}${maths(`<mrow>${of.symbol}${sign}${grid(cellsOf)}</mrow>`, spoken, ' display="block"')}</div>`;
      })
      .join('');
    return (
      `<figure${attributes({ array: of.array, of: of.rule ?? '', symbol: of.letter.toUpperCase(), role: of.role })}>` +
      `<figcaption>${of.title}</figcaption><div class="forms">${buttons}${parts}</div></figure>`
    );
  }

  // -- weights --------------------------------------------------------------------------------------------------------
  const words = i => (state.words[i] ? escape(state.words[i]) : '');
  const label = (base, i, role) =>
    `${maths(name(base, `<mn>${i + 1}</mn>`, role), `${base}_${i + 1}`)}${words(i) ? ` <small>${words(i)}</small>` : ''}`;
  const share = x => Number(decimal(x, 6)) || 0;
  function heat(weights, array, rule) {
    const rows = lifted(weights).map((row, i) => {
      const cells = row.map((x, j) => {
        const w = share(x),
          colour = `background:color-mix(in oklab,var(--sa-weight) ${(100 * w).toPrecision(4)}%,var(--sa-tint))`;
        const small = isWhole(x) ? '' : `<small>${rounded(decimal(x, 3))}</small>`;
        return (
          `<td style="${colour}"${w > 0.6 ? ' class="over"' : ''}${cellOf(array, 'a', i, j, x)}>` +
          `${entry(x)}${small}</td>`
        );
      });
      return `<tr><th scope="row">${label('q', i, 'query')}</th>${cells.join('')}</tr>`;
    });
    const head = weights[0].map((_, j) => `<th scope="col">${label('k', j, 'key')}</th>`).join('');
    return (
      `<figure class="wide"${attributes({ array, of: rule, symbol: 'A', role: 'weight' })}><table class="heat">` +
      `<caption>Weights: how much of each key a query takes; each row sums to 1</caption>` +
      `<thead><tr><td></td>${head}</tr></thead><tbody>${rows.join('')}</tbody></table></figure>` +
      `<figure class="arrows">${weights.map(arrows).join('')}</figure>`
    );
  }
  function arrows(row, i) {
    const step = 46,
      high = step * row.length,
      from = high / 2,
      letter = (x, y, base, j, role) =>
        `<text x="${x}" y="${y}" ` +
        `fill="var(--sa-${role})" font-style="italic">${base}<tspan dy="4" font-size="72%">${j + 1}</tspan>` +
        `<tspan ${role === 'query' ? `x="${x}" dy="16"` : 'dx="5" dy="-4"'} font-style="normal" class="small">${words(j)}</tspan></text>`;
    const lines = row.map((x, j) => {
      const wide = 14 * share(x),
        y = step * (j + 0.5),
        long = Math.hypot(142, y - from),
        reach = Math.max(7, 1.2 * wide);
      const [dx, dy] = [142 / long, (y - from) / long],
        [u, v] = [186 - dx * reach, y - dy * reach],
        half = Math.max(3, 0.9 * wide);
      return (
        `<path d="M44 ${from}L${u} ${v}" stroke="var(--sa-weight)" stroke-width="${Math.max(wide, 0.8)}"` +
        `${wide < 0.8 ? ' stroke-dasharray="1.5 3"' : ''}/><path fill="var(--sa-weight)" d="M186 ${y}L${u - dy * half} ` +
        `${v + dx * half}L${u + dy * half} ${v - dx * half}z"/>${letter(194, y + 5, 'k', j, 'key')}`
      );
    });
    const said = row.map((x, j) => `${decimal(x, 3)} on key ${j + 1}`).join(', ');
    return `<svg viewBox="0 0 270 ${high}" role="img" aria-label="Query ${i + 1} takes ${said}">${letter(0, from + 5, 'q', i, 'query')}${lines.join('')}</svg>`;
  }

  // Exact minus computed, entry by entry.
  function differences(exact, computed, format) {
    const rows = exact.flatMap((row, i) =>
      row.map((x, j) => {
        const y = computed[i][j],
          gap = y instanceof Fraction ? x.minus(y) : null;
        const shown = gap ? rounded(decimal(gap, 3)) : '–';
        return (
          `<tr><td>${maths(name('o', `<mn>${i + 1}${j + 1}</mn>`, 'output'), `o_${i + 1}${j + 1}`)}</td>` +
          `<td class="right">${entry(x)}</td>` +
          `<td class="right">${rounded(format.shortest(y))}</td><td class="right">${shown}</td></tr>`
        );
      }),
    );
    const head = ['', 'exact', state.format, 'difference'].map(s => `<th class="right">${s}</th>`).join('');
    return (
      `<div class="wide differences"><table class="data"><caption>Exact − ${state.format}</caption>` +
      `<thead><tr>${head}</tr></thead><tbody>${rows.join('')}</tbody></table></div>`
    );
  }

  // -- all of it ------------------------------------------------------------------------------------------------------
  function compute() {
    const numbers = { ...state, temperature: Fraction.of(state.temperature) };
    for (const array of ['x', 'w_q', 'w_k', 'w_v']) numbers[array] = state[array].map(row => row.map(Fraction.of));
    return [attention(numbers), floating(state.format, numbers)];
  }
  function draw() {
    const before = page.querySelector('.forms input:checked');
    chosen = before?.dataset.form ?? chosen;
    const [exact, floats] = compute(),
      { format } = floats,
      one = state.heads === 1;
    groups = 0;
    const show = (of, get) => figure(of, get(exact), get(floats), format);
    const roles = [
      ['k', 'key', 'Keys', 'w_k'],
      ['q', 'query', 'Queries', 'w_q'],
      ['v', 'value', 'Values', 'w_v'],
    ].map(([array, role, title, w]) =>
      show(
        { array, letter: array, role, title, symbol: name(array.toUpperCase(), '', role), rule: `dot x ${w}` },
        all => all[array],
      ),
    );
    const each = make =>
      exact.heads.map((_, h) => (one ? '' : `<h3>Head ${h + 1}</h3>`) + make(h, one ? '' : `${h + 1}`)).join('');
    results[1].innerHTML = `<div class="row">${roles.join('')}</div>`;
    results[2].innerHTML = each(
      (h, mark) =>
        `<div class="row">${show(
          {
            array: `scores${mark}`,
            letter: 's',
            role: 'score',
            title: 'Scores',
            symbol: name('S', '', 'score'),
            rule: one ? 'rows q k' : '',
          },
          all => all.heads[h].scores,
        )}${show(
          {
            array: `scaled${mark}`,
            letter: 's′',
            role: 'score',
            title: 'Scaled and masked',
            symbol: '<mrow class="r-score"><msup><mi>S</mi><mo>′</mo></msup></mrow>',
            rule: `each scores${mark}`,
          },
          all => all.heads[h].scaled,
        )}</div>`,
    );
    results[3].innerHTML = each(
      (h, mark) =>
        heat(exact.heads[h].weights, `weights${mark}`, `softmax scaled${mark}`) +
        show(
          {
            array: `weights${mark}`,
            letter: 'a',
            role: 'weight',
            title: 'The same weights in all forms',
            symbol: name('A', '', 'weight'),
            rule: `softmax scaled${mark}`,
          },
          all => all.heads[h].weights,
        ),
    );
    results[4].innerHTML =
      show(
        {
          array: 'output',
          letter: 'o',
          role: 'output',
          title: one ? 'Output' : 'Output, heads side by side',
          symbol: name('O', '', 'output'),
          rule: one ? 'dot weights v' : '',
        },
        all => all.output,
      ) + differences(exact.output, floats.output, format);
    history.replaceState(null, '', `#${new URLSearchParams(plain(state))}`);
    page.dispatchEvent(new Event('symattn:changed'));
  }

  // -- inputs ---------------------------------------------------------------------------------------------------------
  const low = s => s.replace(/_([A-Z])/g, '<sub>$1</sub>');
  const input = (value, said, more = '') => `<input value="${escape(value)}" aria-label="${said}" size="4"${more}>`;
  function edited(array, letter, title, symbol, role) {
    const rows = state[array]
      .map((row, i) => {
        const word =
          array === 'x'
            ? `<th>${input(state.words[i] ?? '', `word ${i + 1}`, ` data-word="${i}" class="word" placeholder="token ${i + 1}"`)}</th>`
            : '';
        return `<tr>${word}${row
          .map(
            (value, j) =>
              `<td${cellOf(array, letter, i, j, Quotient.of(Fraction.of(value)))}>` +
              `${input(value, `${symbol}, row ${i + 1}, column ${j + 1}`, ` data-at="${array} ${i} ${j}" inputmode="text"`)}</td>`,
          )
          .join('')}</tr>`;
      })
      .join('');
    return (
      `<figure${attributes({ array, of: '', symbol, role })}><figcaption>${title}: ${low(symbol)}</figcaption>` +
      `<table class="edit"><tbody>${rows}</tbody></table></figure>`
    );
  }
  const option = (value, words_, now) =>
    `<option value="${value}"${value === now ? ' selected' : ''}>${words_}</option>`;
  const select = (key, title, pairs, now) =>
    `<label>${low(title)} <select data-key="${key}">${pairs.map(([value, w]) => option(value, w, now)).join('')}</select></label>`;
  function controls() {
    const upTo = (step = 1) =>
      Array.from({ length: MOST / step }, (_, i) => [`${(i + 1) * step}`, `${(i + 1) * step}`]);
    const sizes = [
      ['n', 'tokens', state.x.length, 1],
      ['d_model', 'numbers for each', state.x[0].length, 1],
      ['d_k', 'columns of W_Q, W_K', state.w_q[0].length, state.heads],
      ['d_v', 'columns of W_V', state.w_v[0].length, state.heads],
    ];
    return (
      `<div class="controls">${sizes.map(([key, title, now, step]) => select(key, title, upTo(step), `${now}`)).join('')}` +
      select(
        'heads',
        'heads',
        [
          ['1', '1'],
          ['2', '2'],
        ],
        `${state.heads}`,
      ) +
      select(
        'scale',
        'scale',
        [
          ['none', 'none'],
          ['root', '1/√dₖ'],
        ],
        state.scale,
      ) +
      select(
        'causal',
        'mask',
        [
          ['0', 'none'],
          ['1', 'causal'],
        ],
        state.causal ? '1' : '0',
      ) +
      `<label>temperature ${input(state.temperature, 'temperature', ' data-key="temperature"')}</label>` +
      select(
        'format',
        'format',
        Object.keys(FORMATS).map(f => [f, f]),
        state.format,
      ) +
      `<button type="button" class="link">Copy the link</button></div>`
    );
  }
  function ask() {
    const weights = WORDS.map(([array, letter, role, title]) =>
      edited(array, `w${letter.toLowerCase()}`, `Projection of the ${title}`, `W_${letter}`, role),
    );
    results[0].innerHTML = `${controls()}<p class="wrong" role="alert"></p><div class="row">${edited('x', 'x', 'Tokens', 'X', 'input')}${weights.join('')}</div>`;
  }
  const resized = (matrix, rows, columns) =>
    Array.from({ length: rows }, (_, i) => Array.from({ length: columns }, (_, j) => matrix[i]?.[j] ?? '0'));
  function resize(key, size) {
    const [n, d, k, v] = [state.x.length, state.x[0].length, state.w_q[0].length, state.w_v[0].length];
    const now = { n, d_model: d, d_k: k, d_v: v, [key]: size };
    if (key === 'heads') for (const w of ['d_k', 'd_v']) now[w] = Math.min(MOST, Math.ceil(now[w] / size) * size);
    state.x = resized(state.x, now.n, now.d_model);
    for (const w of ['w_q', 'w_k']) state[w] = resized(state[w], now.d_model, now.d_k);
    state.w_v = resized(state.w_v, now.d_model, now.d_v);
  }
  function changed({ target }) {
    const { at, key, word } = target.dataset,
      value = target.value.trim();
    if (at || key === 'temperature') {
      const found = Fraction.of(value),
        wrong = !found || (key && found.n <= 0n) || value.length > 12;
      target.toggleAttribute('aria-invalid', false);
      if (wrong) target.setAttribute('aria-invalid', 'true');
      page.querySelector('.wrong').textContent = wrong
        ? `${value || 'nothing'} is not ${key ? 'a positive' : 'a'} number: write 2, −1, 1/3 or 0.25`
        : '';
      if (wrong) return;
      const clear_ = value.replace('−', '-').replace(/\s/g, '');
      if (key) state.temperature = clear_;
      else {
        const [array, i, j] = at.split(' ');
        state[array][i][j] = clear_;
        Object.assign(target.closest('td').dataset, { t: text(formula(Quotient.of(found))) });
      }
    } else if (word) state.words[word] = target.value.replace(/[,;]/g, '');
    else if (key === 'causal') state.causal = value === '1';
    else if (key === 'scale' || key === 'format') state[key] = value;
    else if (key) {
      if (key === 'heads') state.heads = +value;
      resize(key, +value);
      ask();
    } else return;
    draw();
  }
  const results = sections.map(section => section.appendChild(document.createElement('div')));
  page.addEventListener('input', changed);
  page.addEventListener('click', ({ target }) => {
    if (target.matches('.link'))
      navigator.clipboard.writeText(location.href).then(() => {
        target.textContent = 'Copied';
      });
  });
  addEventListener('hashchange', () => {
    state = opened();
    ask();
    draw();
  });
  ask();
  draw();
}
