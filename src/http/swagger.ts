import { Elysia } from 'elysia'

/** An OpenAPI 3 document as plain data. */
export type OpenApi = {
  readonly openapi: string
  readonly info: { readonly title: string; readonly version: string; readonly description?: string }
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
  readonly [more: string]: unknown
}

export type Operation = { readonly summary: string; readonly [more: string]: unknown }

/**
 * The pages of an API's documentation: `GET /docs` (Swagger UI), `/docs/json` (the document) and the page's files, all
 * from this process: the policy of the page lets a browser load nothing from anywhere else.
 */
export const docsPages = (title: string, document: () => OpenApi | Promise<OpenApi>): Elysia => {
  const html = page(title)
  const app = new Elysia({ name: 'docs', seed: title })
  app.get('/docs', () => new Response(html, { headers: HTML_HEADERS }), HIDDEN)
  app.get('/docs/json', async () => Response.json(await document(), { headers: SAFE_HEADERS }), HIDDEN)
  for (const [name, asset] of Object.entries(DOCS_ASSETS))
    app.get(`/docs/${name}`, () => new Response(asset.body(), { headers: assetHeaders(asset.type) }), HIDDEN)
  return app
}

const HIDDEN = { detail: { hide: true } } as const

type Asset = { readonly type: string; readonly body: () => Blob | string }

const packaged = (file: string, type: string): Asset => {
  const url = new URL(import.meta.resolve(`swagger-ui-dist/${file}`))
  return { type, body: () => Bun.file(url) }
}

/** Starts Swagger UI; a file of its own, as the policy allows no script inside the page. */
const START = `window.ui = SwaggerUIBundle({
  url: '/docs/json',
  dom_id: '#swagger-ui',
  deepLinking: true,
  displayRequestDuration: true,
  docExpansion: 'list',
  defaultModelsExpandDepth: 0,
  persistAuthorization: false,
  tryItOutEnabled: true,
  validatorUrl: null,
  presets: [SwaggerUIBundle.presets.apis],
  layout: 'BaseLayout',
})
`

const STYLE = `body { margin: 0; background: #fff }
.swagger-ui .info { margin: 24px 0 }
.swagger-ui .scheme-container { box-shadow: none; padding: 12px 0 }
`

/** The files of the page by name. */
export const DOCS_ASSETS: Readonly<Record<string, Asset>> = {
  'swagger-ui.css': packaged('swagger-ui.css', 'text/css; charset=utf-8'),
  'swagger-ui-bundle.js': packaged('swagger-ui-bundle.js', 'text/javascript; charset=utf-8'),
  'favicon-32x32.png': packaged('favicon-32x32.png', 'image/png'),
  'docs.css': { type: 'text/css; charset=utf-8', body: () => STYLE },
  'start.js': { type: 'text/javascript; charset=utf-8', body: () => START },
}

const page = (title: string): string => `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>${Bun.escapeHTML(title)}</title>
    <link rel="stylesheet" href="/docs/swagger-ui.css">
    <link rel="stylesheet" href="/docs/docs.css">
    <link rel="icon" type="image/png" href="/docs/favicon-32x32.png">
  </head>
  <body>
    <div id="swagger-ui"></div>
    <script src="/docs/swagger-ui-bundle.js"></script>
    <script src="/docs/start.js"></script>
  </body>
</html>
`

/** Headers of every page and file that a browser may meet. */
export const SAFE_HEADERS = {
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
} as const

// Swagger UI sets style attributes, hence the one 'unsafe-inline'; its icons are data: images.
const HTML_HEADERS = {
  ...SAFE_HEADERS,
  'content-type': 'text/html; charset=utf-8',
  'cache-control': 'no-cache',
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}

const assetHeaders = (type: string) => ({ ...SAFE_HEADERS, 'content-type': type, 'cache-control': 'max-age=3600' })
