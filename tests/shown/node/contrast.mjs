// node contrast.mjs CHROME FOLDER: texts of the pages in a folder that cannot be read well, in light and in dark; 1 if any.
// Source: W3C, Web Content Accessibility Guidelines 2.2 (2023), 1.4.3: 4.5 for text, 3 for large text.
import { readdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import puppeteer from 'puppeteer-core';

const [executablePath, folder] = process.argv.slice(2);
const pages = readdirSync(folder, { recursive: true }).filter(name => name.endsWith('.html')).sort();

// Each kind of text that is too faint: the element, its contrast and its first words. It runs within the page.
function faint() {
  const brush = Object.assign(document.createElement('canvas'), { width: 1, height: 1 }).getContext('2d', { willReadFrequently: true });
  const mixed = layers => {
    brush.clearRect(0, 0, 1, 1);
    for (const layer of layers) {
      brush.fillStyle = layer;
      brush.fillRect(0, 0, 1, 1);
    }
    return [...brush.getImageData(0, 0, 1, 1).data].slice(0, 3).map(x => x / 255);
  };
  const light = colour => {
    const [r, g, b] = colour.map(x => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = new Map(), walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const words = walker.currentNode.data.trim(), at = walker.currentNode.parentElement;
    if (!words || at.closest('script,style,noscript,svg,.visually-hidden,.headerlink') || !at.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    const own = getComputedStyle(at), under = ['white'];
    for (let up = at, layers = []; ; up = up.parentElement) {
      if (!up) { under.push(...layers.reverse()); break; }
      layers.push(getComputedStyle(up).backgroundColor);
    }
    const [low, high] = [light(mixed(under)), light(mixed([...under, own.color]))].sort((a, b) => a - b);
    const size = parseFloat(own.fontSize), large = size >= 24 || (size >= 18.66 && own.fontWeight >= 700);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < (large ? 3 : 4.5)) found.set(`${at.localName}.${at.className} ${ratio.toFixed(2)}`, words.slice(0, 40));
  }
  return [...found].map(pair => pair.join(': '));
}

const browser = await puppeteer.launch({ executablePath, args: ['--no-sandbox', '--disable-dev-shm-usage'], timeout: 0, protocolTimeout: 0 });
const page = await browser.newPage(), all = new Map();
page.setDefaultTimeout(0);
for (const name of pages) {
  await page.goto(pathToFileURL(resolve(join(folder, name))).href, { waitUntil: 'domcontentloaded' });
  for (const theme of ['light', 'dark']) {
    await page.evaluate(x => { document.body.dataset.theme = x; document.documentElement.dataset.theme = x; }, theme);
    for (const fault of await page.evaluate(faint)) if (!all.has(`${theme} ${fault}`)) all.set(`${theme} ${fault}`, name);
  }
}
await browser.close();
for (const [fault, name] of all) console.log(`${name}: ${fault}`);
console.log(`${pages.length} pages, ${all.size} kinds of text are too faint`);
process.exit(all.size ? 1 : 0);
