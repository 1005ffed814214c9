'use strict';
// The steps of the page to explore as HTML, from its state alone: it runs in a worker, and knows no page.
{
  const { Fraction, Quotient, FORBIDDEN, attention, floating, formula, text, mathml, decimal } = globalThis.exactly;
  const escape = s => s.replace(/[&<>"]/g, c => `&#${c.charCodeAt(0)};`);
  const LOW = n => [...`${n}`].map(c => '₀₁₂₃₄₅₆₇₈₉'[c]).join('');
  const clean = s => s.replace(/^-/, '−');
  let state = null;

  // -- arrays ---------------------------------------------------------------------------------------------------------
  let groups = 0,
    chosen = 'exact'; // the form of numbers that the page shows
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
  // The HTML of the sections after the inputs, and of the weights and outputs that stand beside the inputs.
  function steps(asked, form) {
    [state, chosen] = [asked, form];
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
    const projections = `<div class="row">${roles.join('')}</div>`;
    const scores = each(
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
    const weights = each(
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
    const output =
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
    return { sections: [projections, scores, weights, output], beside: beside(exact) };
  }
  // Weights and outputs in few digits, a row for each query.
  function beside(exact) {
    const cell = (x, isWeight) => {
      const shown = decimal(x, 3),
        part = isWeight ? (100 * share(x)).toPrecision(4) : 0;
      const colour = `background:color-mix(in oklab,var(--sa-weight) ${part}%,var(--sa-tint))`;
      return `<td${part > 60 ? ' class="over"' : ''} style="${colour}">${rounded(shown)}</td>`;
    };
    const rowsOf = (matrix, base, role) =>
      matrix
        .map((row, i) => `<tr><th scope="row">${label(base, i, role)}</th>${row.map(x => cell(x, base === 'q')).join('')}</tr>`)
        .join('');
    const keys = exact.heads[0].weights[0].map((_, j) => `<th scope="col">${label('k', j, 'key')}</th>`).join('');
    const ofHead = (h, i) =>
      `<table class="few"><caption>Weights${exact.heads.length > 1 ? ` of head ${i + 1}` : ''}</caption>` +
      `<thead><tr><td></td>${keys}</tr></thead><tbody>${rowsOf(h.weights, 'q', 'query')}</tbody></table>`;
    return (
      exact.heads.map(ofHead).join('') +
      `<table class="few"><caption>Output</caption><tbody>${rowsOf(exact.output, 'o', 'output')}</tbody></table>`
    );
  }
  globalThis.explored = { steps, cellOf, attributes };

}
