// node exact.mjs: states in, a line of JSON each; every exact number and decimal of the page to explore out, and floats.
import { readFileSync } from 'node:fs';
import { runInThisContext } from 'node:vm';

runInThisContext(readFileSync(new URL('../../../symattn/document/render/web/exact.js', import.meta.url), 'utf8'));
const { Fraction, FORBIDDEN, attention, floating, formula, text, decimal } = globalThis.exactly;
const told = x => (x instanceof Fraction ? [`${x}`, ''] : [text(formula(x), true), x === FORBIDDEN ? '' : decimal(x)]);
const named = ({ q, k, v, heads, output }) => ({ q, k, v, output, scores: heads.map(h => h.scores), scaled: heads.map(h => h.scaled),
  weights: heads.map(h => h.weights) });
const nested = (x, f) => (Array.isArray(x) ? x.map(y => nested(y, f)) : f(x));

for (const line of readFileSync(0, 'utf8').split('\n').filter(Boolean)) {
  const state = JSON.parse(line), arrays = ['x', 'w_q', 'w_k', 'w_v'];
  for (const name of arrays) state[name] = state[name].map(row => row.map(Fraction.of));
  state.temperature = Fraction.of(state.temperature);
  const exact = nestedAll(named(attention(state)), told), computed = floating(state.format, state);
  const floats = nestedAll(named(computed), x => [x instanceof Fraction ? `${x}` : String(x), computed.format.shortest(x)]);
  console.log(JSON.stringify({ exact, floats }));
}

function nestedAll(found, f) {
  return Object.fromEntries(Object.entries(found).map(([name, x]) => [name, nested(x, f)]));
}
